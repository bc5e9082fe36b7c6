package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
)

var everything = store.Filter{Slots: store.SlotRange{First: 0, Last: store.Slots - 1}, Types: notification.AllTypes}

// readAll reads the whole log in one page.
func readAll(t *testing.T, s *sqlite.Store) []notification.Envelope {
	t.Helper()
	target, err := s.Probe(t.Context())
	require.NoError(t, err)
	r, err := s.NewReader(nil, everything)
	require.NoError(t, err)
	page, err := r.Next(t.Context(), target, 10_000)
	require.NoError(t, err)
	return page.Envelopes
}

func Example() {
	ctx := context.Background()
	dir, remove := exampleDir()
	defer remove()
	db, err := sqlite.OpenDB(filepath.Join(dir, "shop.db"))
	if err != nil {
		panic(err)
	}
	defer func() { _ = db.Close() }()
	applied, err := sqlite.Migrate(ctx, db, sqlite.Config{})
	if err != nil {
		panic(err)
	}
	fmt.Println(applied)

	// Any program can publish, in its own transaction.
	if _, err = db.Exec(`INSERT INTO outbox (type, key, payload) VALUES ('order.placed', 'customer/17', '{"total":42}')`); err != nil {
		panic(err)
	}

	s, err := sqlite.Open(ctx, db, sqlite.Config{})
	if err != nil {
		panic(err)
	}
	target, err := s.Probe(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(target.Last())
	// Output:
	// [00001_outbox.sql 00002_values.sql 00003_routes.sql 00004_cheaper.sql 00005_endpoints.sql 00006_collections.sql 00007_attempts.sql 00008_keys.sql]
	// 1
}

func TestOpenDBAppliesTheSettingsOfAnOutbox(t *testing.T) {
	t.Parallel()
	// These characters have a meaning in a URI.
	path := filepath.Join(t.TempDir(), "50% of #1?.db")
	db, err := sqlite.OpenDB(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	require.FileExists(t, path)
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "busy_timeout": "10000"} {
		var got string
		require.NoError(t, db.QueryRow("PRAGMA "+pragma).Scan(&got))
		require.Equal(t, want, got, pragma)
	}
}

func TestOpenDBRefusesWhatConnectionsCannotShare(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"", ":memory:", "file::memory:?cache=shared"} {
		_, err := sqlite.OpenDB(path)
		require.ErrorContains(t, err, "needs a file", path)
	}
	path := filepath.Join(t.TempDir(), "missing", "outbox.db")
	_, err := sqlite.OpenDB(path)
	require.ErrorContains(t, err, path)
}

func TestATransactionThatReadsFirstWaitsForTheWriter(t *testing.T) {
	t.Parallel()
	_, db := open(t, sqlite.Config{})
	first, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = first.Exec(`INSERT INTO outbox (type, payload) VALUES ('a', '1')`)
	require.NoError(t, err)

	done := make(chan error)
	go func() {
		tx, err := db.BeginTx(t.Context(), nil)
		if err == nil {
			var n int
			err = tx.QueryRow(`SELECT count(*) FROM outbox`).Scan(&n)
		}
		if err == nil {
			_, err = tx.Exec(`INSERT INTO outbox (type, payload) VALUES ('b', '2')`)
		}
		if err == nil {
			err = tx.Commit()
		}
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("the call did not wait: %v", err)
	case <-time.After(20 * time.Millisecond): // by now it would have failed with SQLITE_BUSY
	}
	require.NoError(t, first.Commit())
	require.NoError(t, <-done)
}

func TestThePrefixNamesAllTables(t *testing.T) {
	t.Parallel()
	config := sqlite.Config{Prefix: "shop_events", Receipts: true}
	s, db := open(t, config)
	_, err := db.Exec(`INSERT INTO shop_events (type, payload) VALUES ('a', '1')`)
	require.NoError(t, err)
	require.Len(t, readAll(t, s), 1)

	rows, err := db.Query(`SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' AND name NOT LIKE 'shop\_events%' ESCAPE '\'`)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	require.False(t, rows.Next())
	require.NoError(t, rows.Err())

	// A database can have several outboxes.
	_, err = sqlite.Open(t.Context(), db, sqlite.Config{})
	require.ErrorIs(t, err, store.ErrNotMigrated)
	applied, err := sqlite.Migrate(t.Context(), db, sqlite.Config{})
	require.NoError(t, err)
	require.Equal(t, []string{"00001_outbox.sql", "00002_values.sql", "00003_routes.sql", "00004_cheaper.sql", "00005_endpoints.sql", "00006_collections.sql", "00007_attempts.sql", "00008_keys.sql"}, applied)

	for _, prefix := range []string{"Shop", "a b", "main.outbox", "a;--", strings.Repeat("a", 41)} {
		bad := sqlite.Config{Prefix: prefix}
		_, err = sqlite.Migrate(t.Context(), db, bad)
		require.ErrorIs(t, err, store.ErrPrefix)
		_, err = sqlite.Open(t.Context(), db, bad)
		require.ErrorIs(t, err, store.ErrPrefix)
		_, err = sqlite.MigrationSQL(bad)
		require.ErrorIs(t, err, store.ErrPrefix)
	}
}

func TestReceiptsAreOffByDefault(t *testing.T) {
	t.Parallel()
	s, db := open(t, sqlite.Config{})
	require.False(t, s.KeepsReceipts())
	_, err := s.Cut(t.Context(), "mail", 1, store.StartOldest)
	require.NoError(t, err)
	lease, err := s.Acquire(t.Context(), store.Lanes("mail", 1)[0], "w", time.Hour)
	require.NoError(t, err)
	require.NoError(t, s.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: time.Hour, Receipts: []store.Receipt{{Offset: 1}}}))
	var n int
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM outbox_receipts`).Scan(&n))
	require.Zero(t, n)
}

// A reader could not pass such rows, so they are refused when they are written. SQLite enforces no column
// types, and a text with NUL is cut by some of its functions.
func TestTheLogRefusesRowsThatCannotBeDelivered(t *testing.T) {
	t.Parallel()
	_, db := open(t, sqlite.Config{})
	for values, constraint := range map[string]string{
		`(type, payload) VALUES (NULL, '1')`:                                               "outbox.type",
		`(type, payload) VALUES ('', '1')`:                                                 "type_is_not_empty",
		`(type, payload) VALUES ('a', NULL)`:                                               "outbox.payload",
		`(type, payload, id) VALUES ('a', '1', '')`:                                        "id_is_not_empty",
		`(type, payload) VALUES (zeroblob(256), '1')`:                                      "constraint failed",
		`(type, payload) VALUES ('t' || char(0), '1')`:                                     "constraint failed",
		`(type, payload, id) VALUES ('a', '1', printf('%.*c', 256, 'x'))`:                  "constraint failed",
		`(type, payload, id) VALUES ('a', '1', 'i' || char(0))`:                            "constraint failed",
		`(type, payload, key) VALUES ('a', '1', printf('%.*c', 1025, 'x'))`:                "constraint failed",
		`(type, payload, key) VALUES ('a', '1', 'k' || char(0))`:                           "constraint failed",
		`(type, payload, metadata) VALUES ('a', '1', '{}' || char(0))`:                     "constraint failed",
		`(type, payload, slot) VALUES ('a', '1', 5)`:                                       "slot_is_0",
		`(type, payload, version) VALUES ('a', '1', 0)`:                                    "version_is",
		`(type, payload, version) VALUES ('a', '1', 1.5)`:                                  "version_is",
		`(type, payload, version) VALUES ('a', '1', 'two')`:                                "version_is",
		`(type, payload, version) VALUES ('a', '1', 32768)`:                                "version_is",
		`(type, payload, metadata) VALUES ('a', '1', 'x')`:                                 "metadata_is",
		`(type, payload, metadata) VALUES ('a', '1', '[1]')`:                               "metadata_is",
		`(type, payload, occurred_on) VALUES ('a', '1', 'yesterday')`:                      "occurred_on_is",
		`(type, payload, occurred_on) VALUES ('a', '1', 1767225600)`:                       "occurred_on_is",
		`(type, payload, occurred_on) VALUES ('a', '1', '2026-13-01T00:00:00Z')`:           "occurred_on_is",
		`(type, payload, occurred_on) VALUES ('a', '1', '2026-01-01T00:00:00Z or so')`:     "occurred_on_is",
		`(type, payload, deliver_at) VALUES ('a', '1', 'tomorrow')`:                        "deliver_at_is",
		`(type, payload, deliver_at) VALUES ('a', '1', '')`:                                "deliver_at_is",
		`(type, payload, deliver_at) VALUES ('a', '1', '2026-01-01')`:                      "deliver_at_is",
		`(type, payload, deliver_at) VALUES ('a', '1', unixepoch('now'))`:                  "deliver_at_is",
		`(type, payload, deliver_at) VALUES ('a', '1', julianday('now'))`:                  "deliver_at_is",
		`(type, payload, deliver_at) VALUES ('a', '1', strftime('%Y-%m-%dT%H:%M', 'now'))`: "deliver_at_is",
	} {
		_, err := db.Exec(`INSERT INTO outbox ` + values)
		require.ErrorContains(t, err, constraint, values)
	}
	_, err := db.Exec(`INSERT INTO outbox (payload, type, id, key, metadata) VALUES ('1', 't', printf('%.*c', 255, 'x'), printf('%.*c', 1024, 'x'), '{"a": 1}')`)
	require.NoError(t, err)
}

func TestProducersCanWriteTimesInSQLitesForms(t *testing.T) {
	t.Parallel()
	s, db := open(t, sqlite.Config{})
	want := make(map[string]time.Time)
	for text, micros := range map[string]string{
		"2026-01-02 03:04:05":                 "2026-01-02T03:04:05.000000Z",
		"2026-01-02T03:04:05":                 "2026-01-02T03:04:05.000000Z",
		"2026-01-02T03:04:05Z":                "2026-01-02T03:04:05.000000Z",
		"2026-01-02 03:04:05.678":             "2026-01-02T03:04:05.678000Z",
		"2026-01-02T03:04:05.123456789Z":      "2026-01-02T03:04:05.123456Z",
		"2026-01-02T03:04:05+02:30":           "2026-01-02T00:34:05.000000Z",
		"2026-01-02 03:04:05.5 -02:30":        "2026-01-02T05:34:05.500000Z",
		"2026-02-30 24:00:00":                 "2026-03-03T00:00:00.000000Z",
		"1969-07-20T20:17:40.000001Z":         "1969-07-20T20:17:40.000001Z",
		"0001-01-02T00:00:00Z":                "0001-01-02T00:00:00.000000Z",
		"2026-01-02T03:04:05.99999999999999Z": "2026-01-02T03:04:05.999999Z",
	} {
		_, err := db.Exec(`INSERT INTO outbox (id, type, payload, occurred_on, deliver_at) VALUES (?, 'a', '1', ?, ?)`, text, text, text)
		require.NoError(t, err, text)
		want[text], err = time.Parse(time.RFC3339Nano, micros)
		require.NoError(t, err)
	}
	_, err := db.Exec(`INSERT INTO outbox (id, type, payload, occurred_on) VALUES ('now', 'a', '1', CURRENT_TIMESTAMP), ('later', 'a', '1', datetime('now', '+1 hour'))`)
	require.NoError(t, err)

	for _, e := range readAll(t, s) {
		if text := e.ID; text != "now" && text != "later" {
			require.Equal(t, want[text], e.OccurredOn, text)
			require.Equal(t, want[text], e.DeliverAt, text)
		}
	}
}

func TestPayloadsAreStoredByteForByte(t *testing.T) {
	t.Parallel()
	s, db := open(t, sqlite.Config{})
	_, err := db.Exec(`INSERT INTO outbox (type, payload) VALUES ('a', 'text'), ('a', x'00ff'), ('a', 42), ('a', ''), ('a', x''), ('a', json('{ "n": 1 }'))`)
	require.NoError(t, err)
	var got []string
	for _, e := range readAll(t, s) {
		require.NotNil(t, e.Payload)
		got = append(got, string(e.Payload))
	}
	require.Equal(t, []string{"text", "\x00\xff", "42", "", "", `{"n":1}`}, got)
	require.True(t, s.BinaryPayload())
}

func TestRowsOfAPageShareEqualMetadata(t *testing.T) {
	t.Parallel()
	s, db := open(t, sqlite.Config{})
	_, err := db.Exec(`INSERT INTO outbox (type, payload, metadata) VALUES ('a', '1', '{"tenant":"x"}'), ('b', '2', '{"tenant":"y"}'), ('c', '3', '{"tenant":"x"}')`)
	require.NoError(t, err)
	page := readAll(t, s)
	page[0].Metadata["seen"] = "in the other row"
	require.Equal(t, "in the other row", page[2].Metadata["seen"])
	require.NotContains(t, page[1].Metadata, "seen")
}

func TestAPositionIsAnOffset(t *testing.T) {
	t.Parallel()
	s, _ := open(t, sqlite.Config{})
	target, err := s.Probe(t.Context())
	require.NoError(t, err)
	r, err := s.NewReader([]byte(` {"offset": 0} `), everything)
	require.NoError(t, err)
	page, err := r.Next(t.Context(), target, 1)
	require.NoError(t, err)
	raw, err := page.End.MarshalJSON()
	require.NoError(t, err)
	require.JSONEq(t, `{"offset":0}`, string(raw))

	for _, text := range []string{`{"offset":-1}`, `{"offset":1.5}`, `{"offset":"1"}`, `{"offset":null}`, `{"offset":1,"newer":2}`, `{"offset":1}{}`, `{"offset":99999999999999999999}`} {
		_, err := s.NewReader([]byte(text), everything)
		require.ErrorIs(t, err, store.ErrPosition, text)
	}
}

func TestAStatementHasAsManyRowsAsParametersAllow(t *testing.T) {
	t.Parallel()
	s, db := open(t, sqlite.Config{})
	publisher, err := outbox.New(registry.New(), s, outbox.Config{})
	require.NoError(t, err)
	want := make([]notification.Envelope, s.Limits().Parameters/8+1)
	for i := range want {
		want[i] = notification.Envelope{ID: notification.NewID(), Type: "a", Payload: []byte("x")}
	}
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	counting := &countingTx{Tx: tx}
	require.NoError(t, publisher.Append(t.Context(), counting, want...))
	require.NoError(t, tx.Commit())
	require.Equal(t, 2, counting.statements, "the last row does not fit into the first")

	got := readAll(t, s)
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i].ID, got[i].ID)
	}
}

// countingTx counts the statements of a transaction.
type countingTx struct {
	*sql.Tx
	statements int
}

func (c *countingTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	c.statements++
	return c.Tx.ExecContext(ctx, query, args...)
}

func TestAPrefixMayBeAWordOfSQLAlsoInThePrintedSQL(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"shop", "order", "group", "select", "table"} {
		db := newDB(t)
		c := sqlite.Config{Prefix: prefix}
		script, err := sqlite.MigrationSQL(c)
		require.NoError(t, err)
		_, err = db.Exec(script)
		require.NoError(t, err, prefix)
		applied, err := sqlite.Migrate(t.Context(), db, c)
		require.NoError(t, err, prefix)
		require.Empty(t, applied)
		s, err := sqlite.Open(t.Context(), db, c)
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), s.InsertInto()+` ('a', 'a', 1, '', '2026-01-02T03:04:05Z', NULL, '{}', '1')`)
		require.NoError(t, err)
		sample, err := s.Sample(t.Context(), store.SampleQuery{})
		require.NoError(t, err)
		require.Equal(t, int64(1), sample.LastOffset)
	}
}

func TestAnOffsetThatNoReaderWouldFindIsRefused(t *testing.T) {
	t.Parallel()
	s, db := open(t, sqlite.Config{})
	insert := func(values string) error {
		_, err := db.ExecContext(t.Context(), `INSERT INTO outbox ("offset", type, payload) VALUES `+values)
		return err
	}
	for _, low := range []string{"0", "-1", "-9223372036854775808"} {
		require.ErrorContains(t, insert(`(`+low+`, 'a', '{}')`), "no reader would find this offset", low)
	}
	require.NoError(t, insert(`(NULL, 'a', '{}'), (7, 'a', '{}'), (5, 'a', '{}')`), "they are committed together")
	_, err := db.ExecContext(t.Context(), `DELETE FROM outbox WHERE "offset" = 5`)
	require.NoError(t, err)
	require.ErrorContains(t, insert(`(5, 'a', '{}')`), "no reader would find this offset", "a reader may be further")
	require.NoError(t, insert(`(NULL, 'a', '{}'), (NULL, 'a', '{}')`))
	require.Len(t, readAll(t, s), 4)

	// An application's trigger may insert, too.
	_, err = db.ExecContext(t.Context(), `CREATE TABLE orders (id INTEGER PRIMARY KEY); CREATE TRIGGER captured AFTER INSERT ON orders BEGIN
		INSERT INTO outbox (type, payload) VALUES ('a', '1'), ('a', '2'); INSERT INTO outbox (type, payload) VALUES ('a', '3'); END;
		INSERT INTO orders VALUES (1), (2)`)
	require.NoError(t, err)
	require.Len(t, readAll(t, s), 10)
}
