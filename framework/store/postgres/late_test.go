package postgres_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// business begins a transaction that has an id and does not use the log.
func business(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	return begin(t, db, `SELECT pg_current_xact_id()`)
}

// idOf returns a transaction's id.
func idOf(t *testing.T, tx *sql.Tx) (id string) {
	t.Helper()
	require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT pg_current_xact_id()::text`).Scan(&id))
	return id
}

const insertMany = `INSERT INTO outbox (type, payload) SELECT 't', '{}' FROM generate_series(1, 5000)`

// While a transaction ends, its lock on the log can be gone before that on its id.
func TestATransactionThatIsEndingKeepsItsFloor(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	tx := begin(t, db, `INSERT INTO outbox (id, type, payload) VALUES ('a', 't', '{}')`)
	id := idOf(t, tx)
	require.NoError(t, business(t, db).Commit()) // a snapshot lists what began before the last transaction that has ended
	target, err := s.Probe(t.Context())
	require.NoError(t, err)
	floor, risen := int64(0), false
	for start := time.Now(); !risen; { // on a machine that stalls, reading the locks takes too long
		require.Less(t, time.Since(start), time.Minute)
		floor, risen, err = s.Floor(t.Context(), target, id)
		require.NoError(t, err)
	}
	require.Equal(t, int64(1), floor)
	require.NoError(t, tx.Commit())
	_, risen, err = s.Floor(t.Context(), target, id)
	require.NoError(t, err)
	require.False(t, risen)
}

// A batch job gets its transaction id early, and publishes nothing or only at its end. Without a floor,
// each page would read all rows since then.
func TestATransactionThatHasNotUsedTheLogDelaysNoFloor(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]postgres.Config{"of one table": {}, "partitioned": {PartitionRows: 7000}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newDB(t)
			s := openStore(t, db, config)
			l, read := readerOf(t, s)
			number := int64(0)
			var position struct {
				At struct{ Floors map[string]int64 }
			}
			settle := func() (ids []string) {
				number++
				ids, page := read()
				raw, err := page.End.MarshalJSON()
				require.NoError(t, err)
				require.NoError(t, json.Unmarshal(raw, &position))
				require.NoError(t, s.Checkpoint(t.Context(), store.Checkpoint{Lease: l, TTL: time.Hour, Number: number, Position: page.End}))
				return ids
			}
			settle()
			silent, last, early := business(t, db), business(t, db), begin(t, db, `INSERT INTO outbox (id, type, payload) VALUES ('early', 't', '{}')`)
			published := int64(1)
			// The floor rises to where the locks were read.
			risen := func(tx *sql.Tx) bool { return position.At.Floors[idOf(t, tx)] >= published-5000 }
			for i := range 250 { // the slower the locks are to read, the more rarely they are read
				exec(t, db, insertMany)
				require.Len(t, settle(), 5000)
				published += 5000
				if risen(silent) && risen(last) {
					break
				}
				time.Sleep(time.Duration(i) * 10 * time.Millisecond) // five minutes in all
			}
			require.Empty(t, settle())
			exec(t, last, `INSERT INTO outbox (id, type, payload) VALUES ('last', 't', '{}')`)
			require.True(t, risen(silent))
			require.True(t, risen(last))
			require.Zero(t, position.At.Floors[idOf(t, early)])
			require.NoError(t, silent.Commit())
			require.NoError(t, last.Commit())
			require.Equal(t, []string{"last"}, settle())
			require.NoError(t, early.Commit())
			require.Equal(t, []string{"early"}, settle())
		})
	}
}

// What a probe sees during a checkpoint bounds no transaction that began after the checkpoint had its id.
func TestARowPublishedDuringACheckpointIsRead(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	l, read := readerOf(t, s)
	read()
	var late *sql.Tx
	require.NoError(t, s.Checkpoint(t.Context(), store.Checkpoint{Lease: l, TTL: time.Hour, Number: 1, InTx: func(ctx context.Context, _ *sql.Tx) error {
		late = begin(t, db, `INSERT INTO outbox (id, type, payload) VALUES ('late', 't', '{}')`)
		_, err := s.Probe(ctx)
		return err
	}}))
	ids, _ := read()
	require.Empty(t, ids)
	require.NoError(t, late.Commit())
	ids, _ = read()
	require.Equal(t, []string{"late"}, ids)
}

// A prepared transaction has no session, and the server lists its locks differently.
func TestAPreparedTransactionThatHasPublishedIsRead(t *testing.T) {
	t.Parallel()
	server, err := postgrestest.Start(t.Context(), postgrestest.Options{Private: true, Settings: map[string]string{
		"shared_buffers": "16MB", "max_prepared_transactions": "2"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	db := openDB(t, server.DSN())
	s := openStore(t, db, postgres.Config{})
	_, read := readerOf(t, s)
	read()
	tx := begin(t, db, `INSERT INTO outbox (id, type, payload) VALUES ('prepared', 't', '{}')`, `PREPARE TRANSACTION 'p'`)
	_ = tx.Rollback() // the session no longer has a transaction
	for range 4 {
		exec(t, db, insertMany)
		ids, _ := read()
		require.Len(t, ids, 5000)
	}
	exec(t, db, `COMMIT PREPARED 'p'`)
	ids, _ := read()
	require.Equal(t, []string{"prepared"}, ids)
}
