// Package outboxtest opens outboxes for tests. The tests of a process copy one migrated database of each kind,
// which takes less time than migrating one for each test.
package outboxtest

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

var migrated = postgrestest.Template{Prepare: migrate}

func migrate(ctx context.Context, db *sql.DB) error {
	_, err := postgres.Migrate(ctx, db, postgres.Config{})
	return err
}

// DSN returns the URL of a PostgreSQL database that is migrated with the default configuration. Only this test
// uses it, and it is dropped at its end.
func DSN(t testing.TB) string {
	t.Helper()
	return migrated.DSN(t)
}

// Migrated migrates the database of a DSN, and returns the DSN. It is for tests with a server that no others use.
func Migrated(t testing.TB, dsn string) string {
	t.Helper()
	db, err := postgres.OpenDB(dsn)
	require.NoError(t, err)
	require.NoError(t, migrate(t.Context(), db))
	require.NoError(t, db.Close())
	return dsn
}

// PostgreSQL opens the database of a DSN, and its store. The database is closed at the end of the test.
func PostgreSQL(t testing.TB, dsn string, c postgres.Config) (*sql.DB, *postgres.Store) {
	t.Helper()
	db, err := postgres.OpenDB(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	s, err := postgres.Open(t.Context(), db, c)
	require.NoError(t, err)
	return db, s
}

// file is a migrated database of SQLite.
var file = sync.OnceValues(func() (content []byte, err error) {
	folder, err := os.MkdirTemp("", "outboxtest-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "outbox.db")
	db, err := sqlite.OpenDB(path)
	if err != nil {
		return nil, err
	}
	if _, err := sqlite.Migrate(context.Background(), db, sqlite.Config{}); err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil { // writes everything into the one file
		return nil, err
	}
	return os.ReadFile(path)
})

// File returns the path of an SQLite database that is migrated with the default configuration, for this test only.
func File(t testing.TB) string {
	t.Helper()
	content, err := file()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "outbox.db")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}

// SQLite opens the database of a File, and its store. The database is closed at the end of the test.
func SQLite(t testing.TB, path string, c sqlite.Config) (*sql.DB, *sqlite.Store) {
	t.Helper()
	db, err := sqlite.OpenDB(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	s, err := sqlite.Open(t.Context(), db, c)
	require.NoError(t, err)
	return db, s
}
