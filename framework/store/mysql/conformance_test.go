package mysql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
	"github.com/waybill-go/waybill/framework/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	mysqltest.Shared(t) // skips the test if no server is available
	storetest.Run(t, dialect(mysql.Config{Receipts: true}, newDB))
}

// An application's handle has the server's default isolation and no connection flags, and sends arguments
// separately from the statement.
func TestConformanceWithTheApplicationsHandle(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole suite once more")
	}
	mysqltest.Shared(t)
	storetest.Run(t, dialect(mysql.Config{Receipts: true}, func(t testing.TB) *sql.DB {
		db, err := sql.Open("mysql", mysqltest.DSN(t))
		require.NoError(t, err)
		db.SetMaxOpenConns(60)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}))
}

func dialect(config mysql.Config, newDB func(testing.TB) *sql.DB) storetest.Dialect {
	return storetest.Dialect{
		NewDB:   func(t *testing.T) *sql.DB { return newDB(t) },
		Migrate: func(ctx context.Context, db *sql.DB) ([]string, error) { return mysql.Migrate(ctx, db, config) },
		Open:    func(ctx context.Context, db *sql.DB) (storetest.Store, error) { return mysql.Open(ctx, db, config) },
		Restart: []string{`TRUNCATE TABLE outbox`},
		Gap:     `ALTER TABLE outbox AUTO_INCREMENT = 1000000`,
		Quote:   "`",
		Time:    func(t time.Time) string { return `'` + t.UTC().Format("2006-01-02 15:04:05.000000") + `'` },
		NoZones: true,
		OldChecks: []string{
			"ALTER TABLE outbox DROP CONSTRAINT outbox_times", `ALTER TABLE outbox_cursors DROP COLUMN types, DROP COLUMN types_wanted, DROP COLUMN types_before`, `DELETE FROM outbox_migrations WHERE version_id > 1`, `SET SESSION sql_mode = 'ALLOW_INVALID_DATES'`,
		},
		OldTimes: []string{"0000-00-00 00:00:00", "2026-00-00 00:00:00", "2026-02-31 12:00:00", "0000-06-15 12:00:00"},
		Slots:    true,
	}
}
