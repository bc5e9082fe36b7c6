package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

const (
	// deadline is what a test's contexts have.
	deadline = 300 * time.Millisecond
	// soon is how long what heeds its context may take: deadline, a second for the
	// cancelling, and some for a busy machine. lib/pq alone takes 10 s and more.
	soon = 6 * time.Second
)

// behindProxy is a migrated outbox whose store's connections go through a proxy;
// direct is a pool beside it.
func behindProxy(t *testing.T) (p *proxy, db *sql.DB, s *postgres.Store, direct *sql.DB) {
	t.Helper()
	dsn := postgrestest.DSN(t)
	address, err := url.Parse(dsn)
	require.NoError(t, err)
	p = startProxy(t, address.Host)
	address.Host = p.address()
	db, direct = openDB(t, address.String()), openDB(t, dsn)
	return p, db, openStore(t, db, postgres.Config{}), direct
}

func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := postgres.OpenDB(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func acquire(t *testing.T, s *postgres.Store, owner string) store.Lease {
	t.Helper()
	lease, err := s.Acquire(t.Context(), store.Lanes("sink", 1)[0], owner, time.Hour)
	require.NoError(t, err)
	return lease
}

// hookOf makes a checkpoint run a transaction of several statements.
func hookOf(statement string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statement)
		return err
	}
}

func TestNothingOutlivesItsContextInABlackHole(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// prepare leaves the pool with or without a connection.
		prepare func(t *testing.T, db *sql.DB)
		// do has the network go dark at some moment and works on.
		do func(ctx context.Context, p *proxy, db *sql.DB, s *postgres.Store, lease store.Lease) error
	}{
		"sign-on": {
			prepare: func(_ *testing.T, db *sql.DB) { db.SetMaxIdleConns(0) },
			do: func(ctx context.Context, p *proxy, _ *sql.DB, s *postgres.Store, _ store.Lease) error {
				p.swallow()
				_, err := s.Probe(ctx)
				return err
			},
		},
		"probe": {
			do: func(ctx context.Context, p *proxy, _ *sql.DB, s *postgres.Store, _ store.Lease) error {
				p.swallow()
				_, err := s.Probe(ctx)
				return err
			},
		},
		"checkpoint of one statement": {
			do: func(ctx context.Context, p *proxy, _ *sql.DB, s *postgres.Store, lease store.Lease) error {
				p.swallow()
				return s.Checkpoint(ctx, store.Checkpoint{Lease: lease, TTL: time.Hour, Number: 1})
			},
		},
		"BEGIN": {
			do: func(ctx context.Context, p *proxy, _ *sql.DB, s *postgres.Store, lease store.Lease) error {
				p.swallow()
				return s.Checkpoint(ctx, store.Checkpoint{Lease: lease, TTL: time.Hour, Number: 1, InTx: hookOf(`SELECT`)})
			},
		},
		"statement of a transaction": {
			do: func(ctx context.Context, p *proxy, _ *sql.DB, s *postgres.Store, lease store.Lease) error {
				return s.Checkpoint(ctx, store.Checkpoint{Lease: lease, TTL: time.Hour, Number: 1, InTx: func(ctx context.Context, tx *sql.Tx) error {
					p.swallow()
					return hookOf(`SELECT`)(ctx, tx)
				}})
			},
		},
		"COMMIT": {
			do: func(ctx context.Context, p *proxy, _ *sql.DB, s *postgres.Store, lease store.Lease) error {
				return s.Checkpoint(ctx, store.Checkpoint{Lease: lease, TTL: time.Hour, Number: 1, InTx: func(context.Context, *sql.Tx) error {
					p.swallow()
					return nil
				}})
			},
		},
		"ROLLBACK": {
			do: func(ctx context.Context, p *proxy, _ *sql.DB, s *postgres.Store, lease store.Lease) error {
				return s.Checkpoint(ctx, store.Checkpoint{Lease: lease, TTL: time.Hour, Number: 1, InTx: func(context.Context, *sql.Tx) error {
					p.swallow()
					return errors.New("the hook has an error of its own")
				}})
			},
		},
		"rows": {
			do: func(ctx context.Context, p *proxy, db *sql.DB, _ *postgres.Store, _ store.Lease) error {
				rows, err := db.QueryContext(ctx, `SELECT repeat('x', 1000000) FROM generate_series(1, 100)`)
				if err != nil {
					return err
				}
				defer rows.Close()
				p.swallow()
				for rows.Next() {
				}
				return rows.Err()
			},
		},
		"prepared statement": {
			do: func(ctx context.Context, p *proxy, db *sql.DB, _ *postgres.Store, _ store.Lease) error {
				prepared, err := db.PrepareContext(ctx, `SELECT 1`)
				if err != nil {
					return err
				}
				defer prepared.Close()
				p.swallow()
				_, err = prepared.ExecContext(ctx)
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, db, s, direct := behindProxy(t)
			lease := acquire(t, s, "one")
			if test.prepare != nil {
				test.prepare(t, db)
			}
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			ended := make(chan error, 1)
			began := time.Now()
			go func() { ended <- test.do(ctx, p, db, s, lease) }()
			select {
			case err := <-ended:
				require.Error(t, err)
				t.Logf("after %v: %v", time.Since(began).Round(time.Millisecond), err)
			case <-time.After(soon):
				_ = p.close() // or the test would not end
				<-ended
				t.Fatal("it outlived its context")
			}

			p.forward()
			// What was under way on the server may hold the cursor's row for a moment: the
			// server does not know that its client is gone.
			_, err := direct.ExecContext(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'`)
			require.NoError(t, err)
			require.NoError(t, s.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: time.Hour, Number: 1, InTx: hookOf(`SELECT`)}),
				"the pool recovers")
		})
	}
}

// Not parallel: it looks at all goroutines of the process.
func TestABlackHoleLeavesNoGoroutines(t *testing.T) {
	p, db, s, _ := behindProxy(t)
	db.SetMaxIdleConns(0)
	require.NoError(t, db.PingContext(t.Context()))
	before := goleak.IgnoreCurrent()
	db.SetMaxIdleConns(2)
	_, err := s.Probe(t.Context())
	require.NoError(t, err)
	p.swallow()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	_, err = s.Probe(ctx)
	require.Error(t, err)
	require.NoError(t, p.close())
	require.NoError(t, db.Close())
	goleak.VerifyNone(t, before)
}

func TestALongStatementIsNotTakenForADeadConnection(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := db.ExecContext(ctx, `SELECT pg_sleep(2.5)`) // more than all the bounds of an interruption
	require.NoError(t, err)
}

func TestACancelledStatementSaysWhatTheServerSays(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	_, err := db.ExecContext(ctx, `SELECT pg_sleep(30)`)
	require.NotNil(t, pq.As(err, "57014"), "%v", err)
	require.NoError(t, db.PingContext(t.Context()))
}

func TestSigningOnToASilentServerEndsByItself(t *testing.T) {
	t.Parallel()
	p, _, _, _ := behindProxy(t)
	p.swallow()
	db := openDB(t, "postgres://postgres@"+p.address()+"/postgres?sslmode=disable&connect_timeout=1")
	began := time.Now()
	err := db.PingContext(t.Context())
	require.Error(t, err)
	require.Less(t, time.Since(began), soon)
	t.Log(err)
}
