package postgres_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/storetest"
	"github.com/waybill-go/waybill/registry"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, dialect(postgres.Config{Receipts: true}, newDB))
}

// TestConformanceOfAPartitionedLog has partitions so small that every fact crosses
// their borders, and reaches the default one.
func TestConformanceOfAPartitionedLog(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole suite once more")
	}
	storetest.Run(t, dialect(postgres.Config{Receipts: true, PartitionRows: 2}, newDB))
}

// A database's default may be a stricter isolation than PostgreSQL's own; the
// strictest does all that repeatable read does, and more.
func TestConformanceUnderSerializableIsolation(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the whole suite once more")
	}
	storetest.Run(t, dialect(postgres.Config{Receipts: true}, func(t testing.TB) *sql.DB {
		db := newDB(t)
		setDefault(t, db, "default_transaction_isolation", "serializable")
		return db
	}))
}

// setDefault changes a setting of the test's database, for sessions to come.
func setDefault(t testing.TB, db *sql.DB, setting, value string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET `+setting+` = %L', current_database(), '`+value+`'); END $$`)
	require.NoError(t, err)
	db.SetMaxIdleConns(0)
	db.SetMaxIdleConns(60)
}

func dialect(config postgres.Config, newDB func(testing.TB) *sql.DB) storetest.Dialect {
	return storetest.Dialect{
		NewDB: func(t *testing.T) *sql.DB { return newDB(t) },
		Migrate: func(ctx context.Context, db *sql.DB) error {
			_, err := postgres.Migrate(ctx, db, config)
			return err
		},
		Open: func(ctx context.Context, db *sql.DB) (storetest.Store, error) { return postgres.Open(ctx, db, config) },
		Append: func(ctx context.Context, s storetest.Store, tx *sql.Tx, envelopes ...notification.Envelope) error {
			publisher, err := outbox.New(registry.New(), s.(*postgres.Store), outbox.Config{MaxPayload: 64 << 20})
			if err != nil {
				return err
			}
			return publisher.Append(ctx, tx, envelopes...)
		},
		Restart: []string{`TRUNCATE outbox RESTART IDENTITY`},
		Gap:     `SELECT setval('outbox_offset_seq', 999999)`,
		Slots:   true,
	}
}
