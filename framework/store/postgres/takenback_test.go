package postgres_test

import (
	"database/sql"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// A crash undoes what was not flushed, such as the ends of rolled back transactions, and the server then
// assigns their ids again. A reader that survives the crash has seen those ids end, and would skip rows that
// are committed with them now.
func TestKnowledgeAboutTransactionIdsEndsWithACrash(t *testing.T) {
	t.Parallel()
	crashes := map[string]func(t *testing.T, server *postgrestest.Server, db *sql.DB){
		"of the server": func(t *testing.T, server *postgrestest.Server, _ *sql.DB) {
			require.NoError(t, server.Restart(postgrestest.Immediate))
		},
		"of one of its processes": func(t *testing.T, server *postgrestest.Server, db *sql.DB) {
			var version int
			require.NoError(t, db.QueryRow(`SELECT current_setting('server_version_num')::int`).Scan(&version))
			if version < 150000 {
				t.Skip("the crash of a process goes unnoticed before PostgreSQL 15")
			}
			kill(t, db)
		},
	}
	for name, crash := range crashes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 10 { // the server's background work may flush the ids
				if crashTakesBack(t, crash) {
					return
				}
			}
			t.Fatal("no id was assigned again after a crash")
		})
	}
}

// crashTakesBack crashes a server after transactions that should not be flushed. It returns false if they
// were.
func crashTakesBack(t *testing.T, crash func(*testing.T, *postgrestest.Server, *sql.DB)) bool {
	t.Helper()
	server, err := postgrestest.Start(t.Context(), postgrestest.Options{Private: true, Settings: map[string]string{"wal_writer_delay": "10s", "autovacuum": "off"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	db := openDB(t, server.DSN())
	s := openStore(t, db, postgres.Config{})
	insert := inserter(t, db)
	insert("a")
	lease, err := lease(t, s, store.Lanes("s", 1)[0])
	require.NoError(t, err)
	reader := readerFrom(t, s, nil)
	read := func() (ids []string, page store.Page, err error) {
		target := probeOf(t, s)
		for {
			page, err = reader.Next(t.Context(), target, 100)
			require.Empty(t, page.Rebased)
			for _, e := range page.Envelopes {
				ids = append(ids, e.ID)
			}
			if err != nil || page.CaughtUp {
				return ids, page, err
			}
		}
	}
	ids, page, err := read()
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, ids)
	c := store.Checkpoint{Lease: lease, TTL: 1e9, Position: page.End, Number: 1}
	require.NoError(t, s.Checkpoint(t.Context(), c))

	var end int64
	for range 3 {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, tx.QueryRow(`INSERT INTO outbox (type, payload) VALUES ('t', '{}') RETURNING transaction_id`).Scan(&end))
		require.NoError(t, tx.Rollback())
	}
	ids, page, err = read()
	require.NoError(t, err)
	require.Empty(t, ids)

	crash(t, server, db)
	require.Eventually(t, func() bool { return db.PingContext(t.Context()) == nil }, 60e9, 1e7)
	var taken int64
	require.NoError(t, db.QueryRow(`SELECT pg_current_xact_id()`).Scan(&taken))
	if taken > end {
		return false
	}
	want := []string{"b", "c", "d", "e", "f"}
	for _, id := range want {
		insert(id)
	}

	_, _, err = read()
	require.ErrorIs(t, err, store.ErrServerChanged)
	c.Number, c.Position = 2, page.End
	require.ErrorIs(t, s.Checkpoint(t.Context(), c), store.ErrServerChanged)
	c.Number = 1
	require.ErrorIs(t, s.Checkpoint(t.Context(), c), store.ErrServerChanged, "the checkpoint is written, but the lane must stop")

	var stored string
	require.NoError(t, db.QueryRow(`SELECT position FROM outbox_cursors`).Scan(&stored))
	reader = readerFrom(t, s, json.RawMessage(stored))
	ids, _, err = read()
	require.NoError(t, err)
	require.Equal(t, want, ids)
	return true
}

// kill kills one of the server's processes. The server then ends all others and recovers.
func kill(t *testing.T, db *sql.DB) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	witness, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer witness.Close()
	require.NoError(t, witness.PingContext(t.Context()))
	var pid int
	require.NoError(t, conn.QueryRowContext(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
	process, err := os.FindProcess(pid)
	require.NoError(t, err)
	require.NoError(t, process.Kill())
	// The server accepts new connections until it notices the crash.
	require.Eventually(t, func() bool { return witness.PingContext(t.Context()) != nil }, 60e9, 1e7)
	db.SetMaxIdleConns(0) // some sessions may live for a moment longer
	db.SetMaxIdleConns(2)
}

// A page of a server that lags behind would look like the end of the log.
func TestAPageComesFromTheServerThatWasProbed(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	insert := inserter(t, db)
	insert("a")
	reader := readerFrom(t, s, nil)
	require.Len(t, nextPage(t, reader, probeOf(t, s), 100).Envelopes, 1) // a new reader also compares the server of its restore scan
	insert("b")
	target := probeOf(t, s)
	postgres.SetServer(reader, target, "another")
	_, err := reader.Next(t.Context(), target, 100)
	require.ErrorIs(t, err, store.ErrServerChanged)
}
