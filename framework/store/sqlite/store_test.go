package sqlite_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// exampleDir returns a folder for the databases of examples, which have no testing.T.
func exampleDir() (path string, remove func()) {
	path, err := os.MkdirTemp("", "waybill")
	if err != nil {
		panic(err)
	}
	return path, func() { _ = os.RemoveAll(path) }
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, dialect(newDB))
}

func dialect(newDB func(*testing.T) *sql.DB) storetest.Dialect {
	config := sqlite.Config{Receipts: true}
	return storetest.Dialect{
		NewDB:   newDB,
		Migrate: func(ctx context.Context, db *sql.DB) ([]string, error) { return sqlite.Migrate(ctx, db, config) },
		Open:    func(ctx context.Context, db *sql.DB) (storetest.Store, error) { return sqlite.Open(ctx, db, config) },
		Restart: []string{`DELETE FROM outbox`, `DELETE FROM sqlite_sequence WHERE name = 'outbox'`},
		Gap:     `UPDATE sqlite_sequence SET seq = 999999 WHERE name = 'outbox'`,
		OldChecks: []string{
			`DROP TRIGGER outbox_values`, `ALTER TABLE outbox_cursors DROP COLUMN types`, `ALTER TABLE outbox_cursors DROP COLUMN types_wanted`,
			`ALTER TABLE outbox_cursors DROP COLUMN types_before`, `DROP TABLE outbox_endpoints`, `DROP TABLE outbox_attempts`,
			`DROP TABLE outbox_collections`, `DROP TABLE outbox_keys`, `DROP INDEX outbox_parked_group`, `ALTER TABLE outbox_parked DROP COLUMN collect_group`,
			`ALTER TABLE outbox_parked DROP COLUMN collection`, `DELETE FROM outbox_migrations WHERE version_id > 1`,
		},
		OldTimes: []string{"0000-01-01 00:00:00+14:00", "0000-06-15T12:00:00Z"},
	}
}

// newDB creates a database that is removed when the test ends.
func newDB(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sqlite.OpenDB(filepath.Join(t.TempDir(), "outbox.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// open migrates a new database and opens the store.
func open(t *testing.T, c sqlite.Config) (*sqlite.Store, *sql.DB) {
	t.Helper()
	db := newDB(t)
	_, err := sqlite.Migrate(t.Context(), db, c)
	require.NoError(t, err)
	s, err := sqlite.Open(t.Context(), db, c)
	require.NoError(t, err)
	return s, db
}

// Without a busy timeout, some of these would find the file locked.
func TestProcessesCanOpenANewFileSimultaneously(t *testing.T) {
	t.Parallel()
	for range 50 {
		path := filepath.Join(t.TempDir(), "outbox.db")
		var opening errgroup.Group
		for range 4 {
			opening.Go(func() error {
				db, err := sqlite.OpenDB(path)
				if err == nil {
					err = db.Close()
				}
				return err
			})
		}
		require.NoError(t, opening.Wait())
	}
}
