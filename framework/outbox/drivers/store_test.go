package drivers

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
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

// A transaction of pgx, in any mode, manages endpoints.
func TestEndpointsInTransactionsOfPgx(t *testing.T) {
	t.Parallel()
	pool, db := newPool(t)
	_, err := postgres.Migrate(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	s, err := postgres.Open(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			conn, err := pgx.ConnectConfig(t.Context(), func() *pgx.ConnConfig {
				config := pool.Config().ConnConfig
				config.DefaultQueryExecMode = mode
				return config
			}())
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close(t.Context())) }()
			e := store.Endpoint{ID: "e", Tenant: "a", URL: "https://example.com", Types: []string{`order.*`, `'"\`}, Version: 1}
			require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				require.NoError(t, s.AddEndpoint(t.Context(), outbox.Pgx(tx), e, 1))
				require.ErrorIs(t, s.AddEndpoint(t.Context(), outbox.Pgx(tx), e, 1), store.ErrTooManyEndpoints)
				changed := e
				changed.DisabledReason, changed.DisabledAt, changed.Trouble = store.DisabledByPerson, time.Now(), "when: it fails"
				for _, want := range []bool{true, false} {
					ok, err := s.ChangeEndpoint(t.Context(), outbox.Pgx(tx), changed)
					require.NoError(t, err)
					require.Equal(t, want, ok)
				}
				return nil
			}))
			found, err := s.Endpoints(t.Context(), nil, store.EndpointQuery{Troubled: true, Tenants: []string{"a"}})
			require.NoError(t, err)
			require.Len(t, found, 1)
			require.Equal(t, e.Types, found[0].Types)
			for _, want := range []bool{true, false} {
				require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
					deleted, err := s.DeleteEndpoint(t.Context(), outbox.Pgx(tx), "a", "e")
					require.Equal(t, want, deleted)
					return err
				}))
			}
		})
	}
}

// The server ends a transaction that sends nothing for as long as the lease. pgx returns its error, and lib/pq does not.
func TestAHookIsNotBlamedForATransactionThatTheServerEnded(t *testing.T) {
	t.Parallel()
	_, db := newPool(t)
	_, err := postgres.Migrate(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	s, err := postgres.Open(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	_, err = s.Cut(t.Context(), "mail", 1, store.StartOldest)
	require.NoError(t, err)
	lease, err := s.Acquire(t.Context(), store.NewLane("mail", 0, 1), "w", time.Hour)
	require.NoError(t, err)
	err = s.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: time.Second, Number: 1, InTx: func(ctx context.Context, tx *sql.Tx) error {
		var session int
		err := tx.QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&session)
		for lives := true; lives && err == nil; time.Sleep(10 * time.Millisecond) {
			err = db.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, session).Scan(&lives)
		}
		return err
	}})
	require.ErrorContains(t, err, "25P03")
	require.NotErrorIs(t, err, store.ErrSpoiled)
}
