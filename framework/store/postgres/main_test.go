package postgres_test

import (
	"database/sql"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// newDB opens an empty database as the program does.
func newDB(t testing.TB) *sql.DB {
	t.Helper()
	db, err := postgres.OpenDB(postgrestest.DSN(t))
	require.NoError(t, err)
	db.SetMaxOpenConns(60)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// openStore migrates the database and opens the store.
func openStore(t testing.TB, db *sql.DB, c postgres.Config) *postgres.Store {
	t.Helper()
	_, err := postgres.Migrate(t.Context(), db, c)
	require.NoError(t, err)
	s, err := postgres.Open(t.Context(), db, c)
	require.NoError(t, err)
	return s
}

// lease leases a lane, and creates the cursors of its sink if necessary.
func lease(t testing.TB, s *postgres.Store, lane store.Lane) (store.Lease, error) {
	t.Helper()
	if _, err := s.Cut(t.Context(), lane.Sink, lane.Of, store.StartOldest); err != nil {
		return store.Lease{}, err
	}
	return s.Acquire(t.Context(), lane, "o", time.Minute)
}

func probeOf(t testing.TB, s *postgres.Store) store.Target {
	t.Helper()
	target, err := s.Probe(t.Context())
	require.NoError(t, err)
	return target
}

// readerFrom returns a reader of all rows after a position.
func readerFrom(t testing.TB, s *postgres.Store, position json.RawMessage) store.Reader {
	t.Helper()
	r, err := s.NewReader(position, everything)
	require.NoError(t, err)
	return r
}

func nextPage(t testing.TB, r store.Reader, target store.Target, limit int) store.Page {
	t.Helper()
	page, err := r.Next(t.Context(), target, limit)
	require.NoError(t, err)
	return page
}
