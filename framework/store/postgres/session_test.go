package postgres_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/capture"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/registry"
)

// odd are settings of a role with which a plain session does something else, or slower. The last ones are
// tried one by one.
var odd = []string{
	`default_transaction_deferrable = on`, `standard_conforming_strings = off`, `datestyle = 'SQL, DMY'`, `intervalstyle = sql_standard`,
	`timezone = 'Asia/Kathmandu'`, `extra_float_digits = -15`, `bytea_output = escape`, `client_encoding = LATIN1`, `transform_null_equals = on`,
	`array_nulls = off`, `quote_all_identifiers = on`, `enable_indexscan = off`, `enable_seqscan = off`, `row_security = off`, `search_path = public, "$user"`,
	`session_replication_role = replica`, `xmloption = document`, `check_function_bodies = off`, `max_parallel_workers_per_gather = 0`, `jit_above_cost = 0`,
	`gin_fuzzy_search_limit = 1`, `backslash_quote = off`, `escape_string_warning = on`, `synchronous_commit = off`, `plpgsql.variable_conflict = error`,
	`plan_cache_mode = force_generic_plan`, `client_min_messages = error`, `from_collapse_limit = 1`,
	`default_transaction_isolation = 'serializable'`, `default_transaction_isolation = 'repeatable read'`,
}

func TestStatementsDoNotDependOnTheSettingsOfTheRole(t *testing.T) {
	t.Parallel()
	for i, setting := range odd[len(odd)-2:] {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			dsn := postgrestest.DSN(t)
			admin := openDB(t, dsn)
			role, address := newRole(t, admin, dsn)
			exec(t, admin, `GRANT ALL ON SCHEMA public TO `+role)
			for _, other := range odd[:len(odd)-2] {
				exec(t, admin, `ALTER ROLE `+role+` SET `+other)
			}
			exec(t, admin, `ALTER ROLE `+role+` SET `+setting)
			useOutbox(t, openDB(t, address), postgres.Config{Receipts: true, PartitionRows: int64(200 * i)})
		})
	}
}

func TestAPayloadOfBytesIsKnownWhateverTheRoleQuotes(t *testing.T) {
	t.Parallel()
	db := openDB(t, with(t, postgrestest.DSN(t), "quote_all_identifiers", "on"))
	require.True(t, openStore(t, db, postgres.Config{Payload: postgres.PayloadBytes}).BinaryPayload())
}

func TestARoleWithoutASearchPathNamesTheSchema(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	admin := openDB(t, dsn)
	role, address := newRole(t, admin, dsn)
	exec(t, admin, `GRANT ALL ON SCHEMA public TO `+role, `ALTER ROLE `+role+` SET search_path = ''`)
	db := openDB(t, address)
	_, err := postgres.Migrate(t.Context(), db, postgres.Config{})
	require.ErrorContains(t, err, "name one, as in schema.outbox")
	useOutbox(t, db, postgres.Config{Schema: "public", Receipts: true})
}

// Only what a session writes, not how it shows texts, may decide about a change and its key.
func TestACaptureDoesNotDependOnTheSettingsOfTheSessionThatWrites(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	exec(t, db, `CREATE TABLE readings (at timestamptz PRIMARY KEY, value float8, raw bytea, span interval)`)
	require.NoError(t, capture.Add(t.Context(), db, postgres.Config{}, capture.Capture{Table: "readings", Key: "at", Columns: []string{"at", "value", "raw", "span"}}))
	exec(t, db, `INSERT INTO readings VALUES ('2026-03-04 05:06:07+00', 1.000001, 'a', '1 day 2 hours')`)
	exec(t, db, `BEGIN; SET LOCAL datestyle = 'SQL, DMY'; SET LOCAL timezone = 'Asia/Kathmandu'; SET LOCAL intervalstyle = iso_8601;
		SET LOCAL bytea_output = escape; SET LOCAL extra_float_digits = -15;
		UPDATE readings SET value = 1.000002; UPDATE readings SET value = 1.000001; COMMIT`)
	r := readerFrom(t, s, nil)
	target := probeOf(t, s)
	page := nextPage(t, r, target, 10)
	require.Len(t, page.Envelopes, 3)
	for _, e := range page.Envelopes {
		require.Equal(t, page.Envelopes[0].Key, e.Key)
		require.Contains(t, string(e.Payload), `"span":"1 day 02:00:00"`)
	}
}

// useOutbox creates an outbox, and does with its rows what applications, forwarders and operators do.
func useOutbox(t *testing.T, db *sql.DB, c postgres.Config) {
	t.Helper()
	ctx := t.Context()
	s := openStore(t, db, c)
	publisher, err := outbox.New(registry.New(), s, outbox.Config{})
	require.NoError(t, err)
	l, err := lease(t, s, store.NewLane("mail", 0, 1))
	require.NoError(t, err)
	r := readerFrom(t, s, l.Position)

	// The rows of a transaction that commits late are read afterwards.
	begin := func() *sql.Tx {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		return tx
	}
	late := begin()
	at := time.Date(2026, time.March, 4, 5, 6, 7, 890123000, time.UTC)
	envelopes := make([]notification.Envelope, 300)
	for i := range envelopes {
		envelopes[i] = notification.Envelope{ID: fmt.Sprint(i), Type: "t", Version: 1, Key: `käy "'\` + "👍", OccurredOn: at,
			Metadata: map[string]string{"m": `\'"NULL`}, Payload: []byte(`{"text": "\\\"''👍"}`)}
	}
	envelopes[0].Key, envelopes[0].DeliverAt = "", time.Now().Add(time.Hour)
	require.NoError(t, publisher.Append(ctx, late, envelopes...))
	early := begin()
	require.NoError(t, publisher.Append(ctx, early, notification.Envelope{ID: "early", Type: "t", Version: 1, OccurredOn: at, Payload: []byte(`{}`)}))
	require.NoError(t, early.Commit())
	ids, _, err := rest(ctx, s, r)
	require.NoError(t, err)
	require.Equal(t, []string{"early"}, ids)
	require.NoError(t, late.Commit())
	target, err := s.Probe(ctx)
	require.NoError(t, err)
	page, err := r.Next(ctx, target, 1000)
	require.NoError(t, err)
	require.Len(t, page.Envelopes, len(envelopes))
	require.Equal(t, envelopes[1].Key, page.Envelopes[1].Key)
	require.Equal(t, envelopes[1].Metadata, page.Envelopes[1].Metadata)
	require.Equal(t, at, page.Envelopes[1].OccurredOn.UTC())

	// What is parked is listed, found and settled.
	parked := make([]store.Parked, len(page.Envelopes))
	refs := make([]store.Ref, len(page.Envelopes))
	for i, e := range page.Envelopes {
		parked[i] = store.Parked{Envelope: e, State: store.StateRetrying, Attempt: 1, DueAt: time.Now().Add(-time.Minute), LastError: `'\"`}
		refs[i] = store.RefOf(&e)
	}
	require.NoError(t, s.Checkpoint(ctx, store.Checkpoint{Lease: l, TTL: time.Hour, Number: 1, Position: page.End, Park: parked}))
	due, _, err := s.Due(ctx, store.DueQuery{Lane: l.Lane, Now: time.Now(), Limit: 1000})
	require.NoError(t, err)
	require.Len(t, due, len(envelopes))
	require.Equal(t, envelopes[1].Key, due[1].Envelope.Key)
	require.Equal(t, at, due[1].Envelope.OccurredOn.UTC())
	require.JSONEq(t, string(envelopes[1].Payload), string(due[1].Envelope.Payload))
	found, err := s.FindParked(ctx, store.ParkedFilter{Sink: "mail", Key: envelopes[1].Key}, store.ParkedPlace{}, 1000)
	require.NoError(t, err)
	require.Len(t, found, len(envelopes)-1)
	require.NoError(t, s.Checkpoint(ctx, store.Checkpoint{Lease: l, TTL: time.Hour, Number: 2, Unpark: refs,
		Receipts: []store.Receipt{{Offset: refs[1].Offset, ID: refs[1].ID, Receipt: "r", Attempt: 1, DeliveredAt: time.Now()}}}))
	found, err = s.FindParked(ctx, store.ParkedFilter{}, store.ParkedPlace{}, 1000)
	require.NoError(t, err)
	require.Empty(t, found)
	_, err = s.Sample(ctx, store.SampleQuery{})
	require.NoError(t, err)

	// What publishers write in their own transactions counts once.
	tx := begin()
	cancelled, err := s.Cancel(ctx, tx, store.Scheduled{ID: envelopes[0].ID})
	require.NoError(t, err)
	require.Equal(t, 1, cancelled)
	for _, want := range []bool{true, false} {
		free, err := s.Claim(ctx, tx, store.Claim{Type: "t", Key: "k", Period: time.Hour})
		require.NoError(t, err)
		require.Equal(t, want, free)
		first, err := s.First(ctx, tx, "c", "1")
		require.NoError(t, err)
		require.Equal(t, want, first)
	}
	require.NoError(t, tx.Commit())
}
