package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, dialect(postgres.Config{Receipts: true}, newDB))
}

// The partitions are so small that every test crosses their boundaries and reaches the default partition.
func TestConformanceOfAPartitionedLog(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole suite once more")
	}
	storetest.Run(t, dialect(postgres.Config{Receipts: true, PartitionRows: 2}, newDB))
}

// The default isolation of a database may be stricter than PostgreSQL's. The strictest level includes
// the restrictions of repeatable read. Activity in other databases of the server can make its
// transactions fail as if they collided.
func TestConformanceUnderSerializableIsolation(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole suite once more")
	}
	d := dialect(postgres.Config{Receipts: true}, func(t testing.TB) *sql.DB {
		db := newDB(t)
		setDefault(t, db, "default_transaction_isolation", "serializable")
		return db
	})
	d.Collides = func(err error) bool {
		var refusal *pq.Error
		return errors.Is(err, store.ErrLeaseHeld) || errors.As(err, &refusal) && refusal.Code == "40001" // serialization_failure
	}
	storetest.Run(t, d)
}

// setDefault changes a setting of the test's database for new sessions.
func setDefault(t testing.TB, db *sql.DB, setting, value string) {
	t.Helper()
	exec(t, db, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET `+setting+` = %L', current_database(), '`+value+`'); END $$`)
	db.SetMaxIdleConns(0)
	db.SetMaxIdleConns(60)
}

func dialect(config postgres.Config, newDB func(testing.TB) *sql.DB) storetest.Dialect {
	return storetest.Dialect{
		NewDB:   func(t *testing.T) *sql.DB { return newDB(t) },
		Migrate: func(ctx context.Context, db *sql.DB) ([]string, error) { return postgres.Migrate(ctx, db, config) },
		Open:    func(ctx context.Context, db *sql.DB) (storetest.Store, error) { return postgres.Open(ctx, db, config) },
		Restart: []string{`TRUNCATE outbox RESTART IDENTITY`},
		Gap:     `SELECT setval('outbox_offset_seq', 999999)`,
		OldChecks: []string{
			`ALTER TABLE outbox DROP CONSTRAINT outbox_values, ADD CONSTRAINT outbox_values
				CHECK ("offset" > 0 AND isfinite(occurred_on) AND isfinite(deliver_at) AND jsonb_typeof(metadata) = 'object')`,
			`ALTER TABLE outbox_cursors DROP COLUMN types, DROP COLUMN types_wanted, DROP COLUMN types_before`,
			`DELETE FROM outbox_migrations WHERE version_id > 1`,
		},
		OldTimes: []string{"294276-12-31 23:59:59.999999+00", "10000-01-01 00:00:00+00", "4713-01-01 00:00:00+00 BC", "0001-12-31 23:59:59+00 BC"},
		Slots:    true,
	}
}
