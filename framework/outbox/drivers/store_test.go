package drivers

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/storetest"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// newPool returns a pool of an empty database, and a *sql.DB that uses the pool.
func newPool(t testing.TB) (*pgxpool.Pool, *sql.DB) { return newPoolOf(t, 30) }

// newPoolOf is newPool with a number of connections.
func newPoolOf(t testing.TB, connections int32) (*pgxpool.Pool, *sql.DB) {
	t.Helper()
	config, err := pgxpool.ParseConfig(postgrestest.DSN(t))
	require.NoError(t, err)
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	return pool, db
}

// The store passes the conformance suite also over pgx.
func TestConformanceOverAPgxPool(t *testing.T) {
	t.Parallel()
	config := postgres.Config{Receipts: true}
	storetest.Run(t, storetest.Dialect{
		NewDB: func(t *testing.T) *sql.DB {
			_, db := newPool(t)
			return db
		},
		Migrate: func(ctx context.Context, db *sql.DB) ([]string, error) { return postgres.Migrate(ctx, db, config) },
		Open:    func(ctx context.Context, db *sql.DB) (storetest.Store, error) { return postgres.Open(ctx, db, config) },
		Restart: []string{`TRUNCATE outbox RESTART IDENTITY`},
		Gap:     `SELECT setval('outbox_offset_seq', 999999)`,
		Slots:   true,
	})
}
