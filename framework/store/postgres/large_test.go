package postgres_test

import (
	"database/sql"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// largeLog returns a log with payloads of a megabyte after small ones. address may change the address of
// the database.
func largeLog(t *testing.T, small, large int, address func(u *url.URL)) (*postgres.Store, *sql.DB) {
	t.Helper()
	dsn := postgrestest.DSN(t)
	admin := openDB(t, dsn)
	openStore(t, admin, postgres.Config{})
	_, err := admin.ExecContext(t.Context(), `INSERT INTO outbox (type, payload) SELECT 't', '{}' FROM generate_series(1, $1::int)`, small)
	require.NoError(t, err)
	_, err = admin.ExecContext(t.Context(), `INSERT INTO outbox (type, payload) SELECT 't', ('"' || repeat('x', 1000000) || '"')::json FROM generate_series(1, $1::int)`, large)
	require.NoError(t, err)
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	address(u)
	db := openDB(t, u.String())
	s, err := postgres.Open(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	return s, db
}

func TestLargePayloadsGetThroughAStatementTimeout(t *testing.T) {
	t.Parallel()
	const large = 400
	s, db := largeLog(t, 0, large, func(*url.URL) {})
	exec(t, db, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET statement_timeout = 300', current_database()); END $$`)
	db.SetMaxIdleConns(0) // only new sessions have it
	reader := readerFrom(t, s, nil)
	read, failed := 0, 0
	for page := (store.Page{}); !page.CaughtUp; {
		target, err := s.Probe(t.Context())
		if err == nil {
			page, err = reader.Next(t.Context(), target, 2000)
		}
		if err != nil {
			failed++
			require.Less(t, failed, 20, "%d rows read: %v", read, err)
			continue
		}
		failed = 0
		read += len(page.Envelopes)
	}
	require.Equal(t, large, read)
}

// The driver reads the rest of a result even if the caller does not.
func TestAPageOfLargePayloadsMovesLittleMoreThanItCarries(t *testing.T) {
	t.Parallel()
	for name, small := range map[string]int{"from the beginning on": 0, "behind small ones": 20_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const large = 200
			var moved *atomic.Int64
			s, _ := largeLog(t, small, large, func(u *url.URL) { moved = countBytes(t, u) })
			reader := readerFrom(t, s, nil)
			target := probeOf(t, s)
			carried, most := 0, 0
			for page := (store.Page{}); !page.CaughtUp; {
				page = nextPage(t, reader, target, 2000)
				size := 0
				for _, e := range page.Envelopes {
					size += len(e.Payload)
				}
				carried += size
				most = max(most, size)
			}
			require.Greater(t, carried, large*1_000_000)
			require.Less(t, most, 16<<20, "of a page")
			require.Less(t, moved.Load(), int64(carried)*3/2)
		})
	}
}

// countBytes puts a proxy in front of a server, and counts the bytes that the server sends.
func countBytes(t *testing.T, u *url.URL) *atomic.Int64 {
	t.Helper()
	server := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u.Host = listener.Addr().String()
	var (
		count   atomic.Int64
		copying sync.WaitGroup
	)
	t.Cleanup(copying.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	carry := func(to, from net.Conn, count io.Writer) {
		_, _ = io.Copy(to, io.TeeReader(from, count))
		_, _ = to.Close(), from.Close()
	}
	copying.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			backend, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				continue
			}
			copying.Go(func() { carry(backend, client, io.Discard) })
			copying.Go(func() { carry(client, backend, counter{&count}) })
		}
	})
	return &count
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}
