package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	conform(t, dialect(postgres.Config{Receipts: true}, newDB), nil)
}

// conform runs the suite in copies of one migrated database, which takes less time than migrating each of them.
// adjust, which may be nil, is called for each database.
func conform(t *testing.T, d storetest.Dialect, adjust func(*testing.T, *sql.DB)) {
	t.Helper()
	template := postgrestest.Template{Prepare: func(ctx context.Context, db *sql.DB) error {
		_, err := d.Migrate(ctx, db)
		return err
	}}
	open := func(t *testing.T, dsn string) *sql.DB {
		db := openDB(t, dsn)
		addresses.Store(db, dsn)
		t.Cleanup(func() { addresses.Delete(db) })
		db.SetMaxOpenConns(60)
		if adjust != nil {
			adjust(t, db)
		}
		return db
	}
	d.NewDB = func(t *testing.T) *sql.DB { return open(t, postgrestest.DSN(t)) }
	d.Migrated = func(t *testing.T) *sql.DB { return open(t, template.DSN(t)) }
	storetest.Run(t, d)
}

// The partitions are so small that every test crosses their boundaries and reaches the default partition.
func TestConformanceOfAPartitionedLog(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole suite once more")
	}
	conform(t, dialect(postgres.Config{Receipts: true, PartitionRows: 2}, newDB), nil)
}

// The default isolation of a database may be stricter than PostgreSQL's. The strictest level includes
// the restrictions of repeatable read. Activity in other databases of the server can make its
// transactions fail as if they collided.
func TestConformanceUnderSerializableIsolation(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole suite once more")
	}
	d := dialect(postgres.Config{Receipts: true, Prepare: true}, newDB)
	d.Collides = func(err error) bool {
		var refusal *pq.Error
		if !errors.As(err, &refusal) {
			return errors.Is(err, store.ErrLeaseHeld)
		}
		return refusal.Code == "40001" || refusal.Code == "53200" // serialization_failure, and no memory to tell whether it is one
	}
	conform(t, d, func(t *testing.T, db *sql.DB) { setDefault(t, db, "default_transaction_isolation", "serializable") })
}

// addresses are the addresses of databases of conform, at which their stores listen.
var addresses sync.Map

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
		Open: func(ctx context.Context, db *sql.DB) (storetest.Store, error) {
			listening := config
			if dsn, known := addresses.Load(db); known {
				listening.Listen = dsn.(string)
			}
			return postgres.Open(ctx, db, listening)
		},
		Restart: []string{`TRUNCATE outbox RESTART IDENTITY`},
		Gap:     `SELECT setval('outbox_offset_seq', 999999)`,
		OldChecks: []string{
			`ALTER TABLE outbox ALTER id TYPE text, ALTER type TYPE text, ALTER version TYPE smallint, ALTER key TYPE text,
				ALTER occurred_on TYPE timestamptz, ALTER deliver_at TYPE timestamptz, ALTER metadata TYPE jsonb,
				ADD CONSTRAINT outbox_names CHECK (type <> '' AND id <> ''), ADD CONSTRAINT outbox_values
				CHECK ("offset" > 0 AND isfinite(occurred_on) AND isfinite(deliver_at) AND jsonb_typeof(metadata) = 'object')`,
			`ALTER TABLE outbox ADD COLUMN slot smallint NOT NULL GENERATED ALWAYS AS
				((hashtextextended(CASE WHEN key = '' THEN id ELSE key END, 0) & 1023)::smallint) STORED`,
			`DROP DOMAIN outbox_name, outbox_key, outbox_version, outbox_time, outbox_metadata`,
			`ALTER TABLE outbox_cursors DROP COLUMN types, DROP COLUMN types_wanted, DROP COLUMN types_before`,
			`ALTER TABLE outbox_forwarders DROP COLUMN presence`, `DROP TABLE outbox_endpoints, outbox_attempts, outbox_collections, outbox_keys`,
			`ALTER TABLE outbox_parked DROP COLUMN collect_group, DROP COLUMN collection, DROP COLUMN attempts`, `DELETE FROM outbox_migrations WHERE version_id > 1`,
		},
		OldTimes: []string{"294276-12-31 23:59:59.999999+00", "10000-01-01 00:00:00+00", "4713-01-01 00:00:00+00 BC", "0001-12-31 23:59:59+00 BC"},
		Slots:    true,
	}
}
