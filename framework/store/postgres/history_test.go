package postgres_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

var everything = store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.AllTypes}

// drain reads everything after a position. It returns the ids, the position after them, and the reason if
// the log was read again.
func drain(t *testing.T, s *postgres.Store, from json.RawMessage) (ids []string, end json.RawMessage, rebased string) {
	t.Helper()
	reader := readerFrom(t, s, from)
	target := probeOf(t, s)
	for {
		page := nextPage(t, reader, target, 100)
		rebased += page.Rebased
		for _, e := range page.Envelopes {
			ids = append(ids, e.ID)
		}
		if page.CaughtUp {
			end, err := page.End.MarshalJSON()
			require.NoError(t, err)
			return ids, end, rebased
		}
	}
}

func TestATruncatedLogIsReadAgain(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	insert := func(id string) {
		_, err := db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, payload) VALUES ($1, 't', '{}')`, id)
		require.NoError(t, err)
	}
	insert("a")
	insert("b")
	_, at, _ := drain(t, s, nil)
	lease, err := lease(t, s, store.Lanes("s", 1)[0])
	require.NoError(t, err)
	require.NoError(t, s.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: 1e9})) // a watermark: from now on the bound is 2
	_, at, _ = drain(t, s, at)

	exec(t, db, `TRUNCATE outbox RESTART IDENTITY`)
	insert("c")
	ids, at, rebased := drain(t, s, at)
	require.Equal(t, []string{"c"}, ids)
	require.Contains(t, rebased, "the log was truncated")

	insert("d")
	ids, _, rebased = drain(t, s, at)
	require.Equal(t, []string{"d"}, ids, "the reader continues from there")
	require.Empty(t, rebased)
}

func TestTheFirstDeltaLeavesABoundSoThatTheNextOneReadsNothingAgain(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	inserter(t, db)("a", "b", "c")
	_, err := lease(t, s, store.Lanes("s", 1)[0])
	require.NoError(t, err)
	_, at, _ := drain(t, s, nil)
	var position struct {
		At struct{ Bound int64 }
	}
	require.NoError(t, json.Unmarshal(at, &position))
	require.EqualValues(t, 3, position.At.Bound, "%s", at)
}

// inserter publishes rows with ids that it chooses.
func inserter(t *testing.T, db *sql.DB) func(ids ...string) {
	return func(ids ...string) {
		t.Helper()
		for _, id := range ids {
			_, err := db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, payload) VALUES ($1, 't', '{}')`, id)
			require.NoError(t, err)
		}
	}
}

func TestALogThatWasTruncatedAndHasGrownPastTheCursorIsReadAgain(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]string{
		"truncated":        `TRUNCATE outbox RESTART IDENTITY`,
		"sequence altered": `DELETE FROM outbox; ALTER SEQUENCE outbox_offset_seq RESTART`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			s := openStore(t, db, postgres.Config{})
			insert := inserter(t, db)
			insert("a", "b")
			reader := readerFrom(t, s, nil)
			target := probeOf(t, s)
			page := nextPage(t, reader, target, 10)
			require.Len(t, page.Envelopes, 2)
			at, err := page.End.MarshalJSON()
			require.NoError(t, err)
			lease, err := lease(t, s, store.Lanes("s", 1)[0])
			require.NoError(t, err)
			require.NoError(t, s.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: 1e9}))

			exec(t, db, restart)
			insert("c", "d", "e", "f")

			target = probeOf(t, s)
			page = nextPage(t, reader, target, 10)
			require.Len(t, page.Envelopes, 4, "a running reader")
			require.Contains(t, page.Rebased, "the log was truncated")

			ids, at, rebased := drain(t, s, at)
			require.Equal(t, []string{"c", "d", "e", "f"}, ids, "a new reader")
			require.Contains(t, rebased, "the log was truncated")
			insert("g")
			ids, _, rebased = drain(t, s, at)
			require.Equal(t, []string{"g"}, ids)
			require.Empty(t, rebased)
		})
	}
}

// A transaction that took its offset before the sequence was set back is still open. It commits before the
// sequence reaches that offset again.
func TestALogWhoseSequenceWasSetBackIsReadAgain(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	insert := inserter(t, db)
	insert("a", "b", "c", "d")
	_, at, _ := drain(t, s, nil)
	tx := begin(t, db)
	exec(t, tx, `INSERT INTO outbox (id, type, payload) VALUES ('open', 't', '{}')`)
	insert("e")

	exec(t, db, `DELETE FROM outbox WHERE "offset" <= 3; SELECT setval('outbox_offset_seq', 1)`)
	insert("f")
	ids, at, rebased := drain(t, s, at)
	require.Equal(t, []string{"f", "d", "e"}, ids, "also rows above the sequence")
	require.Contains(t, rebased, "the log was truncated")
	require.NoError(t, tx.Commit())
	insert("g")
	ids, _, rebased = drain(t, s, at)
	require.Equal(t, []string{"g", "open"}, ids)
	require.Empty(t, rebased)
}

// restored creates a log as it is after a restore: its rows have transaction ids of another cluster, far
// ahead of this one's.
func restored(t *testing.T, db *sql.DB, ids ...string) {
	t.Helper()
	for _, id := range ids {
		_, err := db.ExecContext(t.Context(),
			`INSERT INTO outbox (transaction_id, id, type, payload) VALUES ((pg_current_xact_id()::text::bigint + 300)::text::xid8, $1, 't', '{}')`, id)
		require.NoError(t, err)
	}
}

func burn(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	exec(t, db, fmt.Sprintf(
		`DO $$ BEGIN FOR i IN 1..%d LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`, n))
}

func TestRestoredRowsComeOnceAndNotAgainWhenTheirIdsAreReached(t *testing.T) {
	t.Parallel()
	for name, from := range map[string]string{
		"a cursor of the old cluster, ahead":  `{"history":{"system":"1","sequence":1},"at":{"snapshot":"900000000:900000000:","bound":3,"last":3}}`,
		"a cursor of the old cluster, behind": `{"history":{"system":"1"},"at":{"snapshot":"5:5:","bound":0}}`,
		"a sink that is new":                  ``,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := privateServer(t)
			db := openDB(t, server.DSN())
			s := openStore(t, db, postgres.Config{})
			insert := inserter(t, db)
			restored(t, db, "a", "b", "c")
			insert("d")
			tx := begin(t, db)
			exec(t, tx, `INSERT INTO outbox (id, type, payload) VALUES ('open', 't', '{}')`)
			insert("e")

			ids, at, rebased := drain(t, s, json.RawMessage(from))
			require.Equal(t, []string{"a", "b", "c", "d", "e"}, ids)
			require.Equal(t, from != "", rebased != "", rebased)
			require.NoError(t, tx.Commit())
			insert("f")
			ids, at, rebased = drain(t, s, at)
			require.Equal(t, []string{"open", "f"}, ids)
			require.Empty(t, rebased)
			for range 5 {
				burn(t, db, 100)
				insert("g")
				ids, at, rebased = drain(t, s, at)
				require.Equal(t, []string{"g"}, ids)
				require.Empty(t, rebased)
			}
		})
	}
}

// The watermark's bound is above the sequence at first, and below it once the log has grown.
func TestAWatermarkFromBeforeTheSequenceWasSetBackIsForgotten(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	insert := inserter(t, db)
	for range 5 {
		insert("old")
	}
	probeOf(t, s)
	_, err := s.Cut(t.Context(), "sink", 1, "")
	require.NoError(t, err)
	_, err = s.Acquire(t.Context(), store.NewLane("sink", 0, 1), "owner", time.Minute)
	require.NoError(t, err)
	exec(t, db, `DELETE FROM outbox; SELECT setval('outbox_offset_seq', 1)`)
	probeOf(t, s)
	tx := begin(t, db)
	exec(t, tx, `INSERT INTO outbox (id, type, payload) VALUES ('open', 't', '{}')`)
	for range 5 {
		insert("new")
	}
	ids, at, _ := drain(t, s, nil)
	require.Equal(t, []string{"new", "new", "new", "new", "new"}, ids)
	require.NoError(t, tx.Commit())
	ids, _, _ = drain(t, s, at)
	require.Equal(t, []string{"open"}, ids)
}

func TestRestoredRowsFarBehindTheEndOfTheLogAreFound(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	restored(t, db, "a", "b")
	exec(t, db, `SELECT nextval('outbox_offset_seq') FROM generate_series(1, 50000)`)
	inserter(t, db)("c")
	ids, at, _ := drain(t, s, nil)
	require.Equal(t, []string{"a", "b", "c"}, ids)
	ids, _, _ = drain(t, s, at)
	require.Empty(t, ids)
}

// privateServer returns a server that no other test uses, since transactions use up ids.
func privateServer(t *testing.T) *postgrestest.Server {
	t.Helper()
	server, err := postgrestest.Start(t.Context(), postgrestest.Options{Private: true, Settings: map[string]string{"shared_buffers": "16MB"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	return server
}

// pg_upgrade keeps ids and offsets; see docs/internals/failures.md.
func TestACursorWithoutAHistoryContinuesWithTheLogs(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	insert := inserter(t, db)
	insert("a")
	_, at, _ := drain(t, s, nil)
	var bare map[string]any
	require.NoError(t, json.Unmarshal(at, &bare))
	require.Contains(t, bare, "history")
	delete(bare, "history")
	raw, err := json.Marshal(bare)
	require.NoError(t, err)
	insert("b")
	ids, at, rebased := drain(t, s, raw)
	require.Equal(t, []string{"b"}, ids)
	require.Empty(t, rebased)
	require.Contains(t, string(at), `"history"`)
}

func TestAServerThatHidesItsIdentityIsJudgedByItsIds(t *testing.T) {
	t.Parallel()
	db := openDB(t, postgrestest.DSN(t))
	db.SetMaxOpenConns(1)
	s := openStore(t, db, postgres.Config{})
	exec(t, db, `REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC;
		CREATE ROLE waybill_without_rights; GRANT SELECT ON ALL TABLES IN SCHEMA public TO waybill_without_rights;
		GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO waybill_without_rights`)
	t.Cleanup(func() {
		_, err := db.Exec(`RESET ROLE; DROP OWNED BY waybill_without_rights; DROP ROLE waybill_without_rights`)
		require.NoError(t, err)
	})
	inserter(t, db)("a")
	exec(t, db, `SET ROLE waybill_without_rights`)
	ids, at, _ := drain(t, s, nil)
	require.Equal(t, []string{"a"}, ids)
	require.NotContains(t, string(at), "system")
	_, _, rebased := drain(t, s, json.RawMessage(`{"history":{"system":"1"},"at":{"snapshot":"900000000:900000000:","bound":0}}`))
	require.Contains(t, rebased, "restored into another cluster")
}

func TestTheLogOfAnotherClusterIsReadAgain(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	exec(t, db, `INSERT INTO outbox (id, type, payload) VALUES ('a', 't', '{}')`)
	foreign := json.RawMessage(`{"at":{"snapshot":"900000000:900000000:","bound":0}}`)
	ids, _, rebased := drain(t, s, foreign)
	require.Equal(t, []string{"a"}, ids)
	require.Contains(t, rebased, "restored into another cluster")
}

func TestThePrintedSQLCreatesTheSameTables(t *testing.T) {
	t.Parallel()
	for _, c := range []postgres.Config{{}, {Prefix: "app_outbox", Payload: postgres.PayloadBytes}} {
		db := newDB(t)
		text, err := postgres.MigrationSQL(c)
		require.NoError(t, err)
		exec(t, db, text)
		s, err := postgres.Open(t.Context(), db, c)
		require.NoError(t, err)
		require.Equal(t, c.Payload == postgres.PayloadBytes, s.BinaryPayload())
	}
}

// An application may set the time zone of a session that returns to a pool, and an operator may set it
// for new sessions of a database.
func TestTheIdentityOfAServerDoesNotDependOnTheTimeZone(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	inserter(t, db)("a")
	lease := acquire(t, s, "o")
	reader := readerFrom(t, s, nil)
	for _, zone := range []string{"Asia/Kathmandu", "America/Lima"} {
		target := probeOf(t, s)
		setDefault(t, db, "timezone", zone)
		_ = nextPage(t, reader, target, 100)
		require.NoError(t, s.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: time.Hour}))
	}
}
