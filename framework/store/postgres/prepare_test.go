package postgres_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// preparedNames are the statements that a connection's session has prepared.
func preparedNames(t *testing.T, conn *sql.Conn) (names []string) {
	t.Helper()
	rows, err := conn.QueryContext(t.Context(), `SELECT name FROM pg_prepared_statements WHERE name LIKE 'waybill%' AND statement LIKE '%outbox%'`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(t, rows.Err())
	return names
}

// onOne calls f with the only connection of a handle.
func onOne(t *testing.T, db *sql.DB, f func(conn *sql.Conn)) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	f(conn)
	require.NoError(t, conn.Close())
}

// preparing returns a store whose looks are prepared, and its handle with one connection.
func preparing(t *testing.T) (*sql.DB, *postgres.Store) {
	t.Helper()
	db, s := listen(t, nil)
	db.SetMaxOpenConns(1)
	return db, s
}

var everyRow = store.Filter{Slots: store.SlotRange{Last: store.Slots - 1}, Types: notification.AllTypes}

// bringsNew publishes a row, looks, and expects it.
func bringsNew(t *testing.T, db *sql.DB, r store.Looker, id string) {
	t.Helper()
	exec(t, db, `INSERT INTO outbox (id, type, payload) VALUES ('`+id+`', 't', '{}')`)
	target, err := r.Look(t.Context())
	require.NoError(t, err)
	ids, all := next(t.Context(), t, r, target)
	require.Equal(t, []string{id}, ids)
	require.True(t, all)
}

func TestALookIsPreparedOnceForEachConnection(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]string{
		"and goes on after DISCARD ALL":          `DISCARD ALL`,
		"and goes on after a column was changed": `ALTER TABLE outbox ALTER COLUMN type TYPE varchar(255)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, s := preparing(t)
			r := caughtUp(t, s, everyRow)
			quoted := store.Filter{Slots: everyRow.Slots, Types: notification.TypeFilter{Names: []string{`it's`, `a\b`, "t"}}}
			other := caughtUp(t, s, quoted)
			for i := range 3 {
				bringsNew(t, db, r, fmt.Sprint("first", i))
			}
			_, err := other.Look(t.Context())
			require.NoError(t, err)
			onOne(t, db, func(conn *sql.Conn) { require.Len(t, preparedNames(t, conn), 2) })

			exec(t, db, then)
			for i := range 2 {
				bringsNew(t, db, r, fmt.Sprint("then", i))
			}
		})
	}
}

// What a server plans for a log of one row would read all of it later.
func TestThePlanOfALookUsesAnIndex(t *testing.T) {
	t.Parallel()
	db, s := preparing(t)
	exec(t, db, `ALTER TABLE outbox SET (autovacuum_enabled = off)`, `INSERT INTO outbox (id, type, payload) VALUES ('before', 't', '{}')`, `VACUUM ANALYZE outbox`)
	r := caughtUp(t, s, everyRow)
	for i := range 3 {
		bringsNew(t, db, r, fmt.Sprint("small", i))
	}
	onOne(t, db, func(conn *sql.Conn) {
		names := preparedNames(t, conn)
		require.Len(t, names, 1)
		exec(t, conn, `SET plan_cache_mode = force_generic_plan`)
		var plan string
		require.NoError(t, conn.QueryRowContext(t.Context(), `EXPLAIN (FORMAT JSON) EXECUTE `+names[0]+`(1, 1001, '3', 1, '{}')`).Scan(&plan))
		require.Contains(t, plan, `"outbox_pkey"`)
	})
}

func TestLooksGoOnBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.DSN(t)
	_ = openStore(t, openDB(t, dsn), postgres.Config{})
	address, err := postgrestest.StartPooler(t, dsn, 3)
	if err != nil {
		t.Skip(err)
	}
	pooled, others := openDB(t, address), openDB(t, address)
	pooled.SetMaxOpenConns(1)
	s, err := postgres.Open(t.Context(), pooled, postgres.Config{Listen: dsn})
	require.NoError(t, err)
	r := caughtUp(t, s, everyRow)
	for i := range 2 {
		bringsNew(t, pooled, r, fmt.Sprint(i))
		onOne(t, pooled, func(conn *sql.Conn) { require.Len(t, preparedNames(t, conn), 1-i, "only the first time") })
		held := begin(t, others) // takes the process that was used last
		exec(t, held, `SELECT 1`)
	}
	bringsNew(t, pooled, r, "last")
	onOne(t, pooled, func(conn *sql.Conn) { require.Empty(t, preparedNames(t, conn), "nothing is prepared any more") })
}

// A plan for all arguments would lock all partitions of a log, and a pooler may keep a process for a session that has
// prepared something.
func TestALookIsNotPreparedForPartitionsOrWithoutListening(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]postgres.Config{"partitions": {PartitionRows: 1000, Listen: "host=unused"}, "without listening": {}} {
		db := newDB(t)
		s := openStore(t, db, c)
		db.SetMaxOpenConns(1)
		bringsNew(t, db, caughtUp(t, s, everyRow), "a")
		onOne(t, db, func(conn *sql.Conn) { require.Empty(t, preparedNames(t, conn), name) })
	}
}
