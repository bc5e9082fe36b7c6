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
	// deadline is the timeout of a test's contexts.
	deadline = 300 * time.Millisecond
	// soon is how long a call that respects its context may take: deadline, a second to cancel the
	// statement, and a margin for a busy machine. lib/pq alone takes 10 s or more.
	soon = 8 * time.Second
)

// endsSoon waits for the result of a call. It counts its own ticks, so that a stall of the machine is one of them.
func endsSoon(ended <-chan error) (err error, ok bool) {
	const tick = 100 * time.Millisecond
	for range soon / tick {
		select {
		case err := <-ended:
			return err, true
		case <-time.After(tick):
		}
	}
	return nil, false
}

// behindProxy returns a migrated outbox whose store connects through a proxy. direct is a pool that
// connects directly.
func behindProxy(t *testing.T) (p *postgrestest.Proxy, db *sql.DB, s *postgres.Store, direct *sql.DB) {
	t.Helper()
	dsn := postgrestest.DSN(t)
	p = postgrestest.StartProxy(t, dsn)
	db, direct = openDB(t, p.DSN()), openDB(t, dsn)
	return p, db, openStore(t, db, postgres.Config{}), direct
}

func openDB(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := postgres.OpenDB(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func acquire(t *testing.T, s *postgres.Store, owner string) store.Lease {
	t.Helper()
	_, err := s.Cut(t.Context(), "sink", 1, store.StartOldest)
	require.NoError(t, err)
	lease, err := s.Acquire(t.Context(), store.Lanes("sink", 1)[0], owner, time.Hour)
	require.NoError(t, err)
	return lease
}

// hookOf returns a hook that executes a statement. A checkpoint with a hook is a transaction of several
// statements.
func hookOf(statement string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statement)
		return err
	}
}

func TestNothingOutlivesItsContextInABlackHole(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// prepare leaves an idle connection in the pool, or none.
		prepare func(t *testing.T, db *sql.DB)
		// do makes the network drop all packets at some moment, and continues.
		do func(ctx context.Context, p *postgrestest.Proxy, db *sql.DB, s *postgres.Store, lease store.Lease) error
	}{
		"sign-on": {
			prepare: func(_ *testing.T, db *sql.DB) { db.SetMaxIdleConns(0) },
			do: func(ctx context.Context, p *postgrestest.Proxy, _ *sql.DB, s *postgres.Store, _ store.Lease) error {
				p.Swallow()
				_, err := s.Probe(ctx)
				return err
			},
		},
		"probe": {
			do: func(ctx context.Context, p *postgrestest.Proxy, _ *sql.DB, s *postgres.Store, _ store.Lease) error {
				p.Swallow()
				_, err := s.Probe(ctx)
				return err
			},
		},
		"checkpoint of one statement": {
			do: func(ctx context.Context, p *postgrestest.Proxy, _ *sql.DB, s *postgres.Store, lease store.Lease) error {
				p.Swallow()
				return s.Checkpoint(ctx, store.Checkpoint{Lease: lease, TTL: time.Hour, Number: 1})
			},
		},
		"BEGIN": {
			do: func(ctx context.Context, p *postgrestest.Proxy, _ *sql.DB, s *postgres.Store, lease store.Lease) error {
				p.Swallow()
				return s.Checkpoint(ctx, store.Checkpoint{Lease: lease, TTL: time.Hour, Number: 1, InTx: hookOf(`SELECT`)})
			},
		},
		"statement of a transaction": {
			do: func(ctx context.Context, p *postgrestest.Proxy, _ *sql.DB, s *postgres.Store, lease store.Lease) error {
				return s.Checkpoint(ctx, store.Checkpoint{Lease: lease, TTL: time.Hour, Number: 1, InTx: func(ctx context.Context, tx *sql.Tx) error {
					p.Swallow()
					return hookOf(`SELECT`)(ctx, tx)
				}})
			},
		},
		"COMMIT": {
			do: func(ctx context.Context, p *postgrestest.Proxy, _ *sql.DB, s *postgres.Store, lease store.Lease) error {
				return s.Checkpoint(ctx, store.Checkpoint{Lease: lease, TTL: time.Hour, Number: 1, InTx: func(context.Context, *sql.Tx) error {
					p.Swallow()
					return nil
				}})
			},
		},
		"ROLLBACK": {
			do: func(ctx context.Context, p *postgrestest.Proxy, _ *sql.DB, s *postgres.Store, lease store.Lease) error {
				return s.Checkpoint(ctx, store.Checkpoint{Lease: lease, TTL: time.Hour, Number: 1, InTx: func(context.Context, *sql.Tx) error {
					p.Swallow()
					return errors.New("the hook fails")
				}})
			},
		},
		"rows": {
			do: func(ctx context.Context, p *postgrestest.Proxy, db *sql.DB, _ *postgres.Store, _ store.Lease) error {
				rows, err := db.QueryContext(ctx, `SELECT repeat('x', 1000000) FROM generate_series(1, 100)`)
				if err != nil {
					return err
				}
				defer rows.Close()
				p.Swallow()
				for rows.Next() {
				}
				return rows.Err()
			},
		},
		"prepared statement": {
			do: func(ctx context.Context, p *postgrestest.Proxy, db *sql.DB, _ *postgres.Store, _ store.Lease) error {
				prepared, err := db.PrepareContext(ctx, `SELECT 1`)
				if err != nil {
					return err
				}
				defer prepared.Close()
				p.Swallow()
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
			err, ok := endsSoon(ended)
			if !ok {
				_ = p.Close() // otherwise the test would not end
				t.Fatalf("the call outlived its context: %v", <-ended)
			}
			require.Error(t, err)
			t.Logf("after %v: %v", time.Since(began).Round(time.Millisecond), err)

			p.Forward()
			// A statement may still lock the cursor's row: the server does not notice that its client is
			// gone.
			exec(t, direct, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'`)
			require.NoError(t, s.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: time.Hour, Number: 1, InTx: hookOf(`SELECT`)}),
				"the pool recovers")
		})
	}
}

// Not parallel, since it checks all goroutines of the process.
func TestABlackHoleLeavesNoGoroutines(t *testing.T) {
	p, db, s, _ := behindProxy(t)
	db.SetMaxIdleConns(0)
	require.NoError(t, db.PingContext(t.Context()))
	before := goleak.IgnoreCurrent()
	db.SetMaxIdleConns(2)
	_ = probeOf(t, s)
	p.Swallow()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	_, err := s.Probe(ctx)
	require.Error(t, err)
	require.NoError(t, p.Close())
	require.NoError(t, db.Close())
	requireNoLeak(t, before)
}

// requireNoLeak waits longer for goroutines to end than the library does: the machine may stall.
func requireNoLeak(t *testing.T, before goleak.Option) {
	t.Helper()
	for start := time.Now(); ; {
		err := goleak.Find(before)
		if err == nil {
			return
		}
		require.Less(t, time.Since(start), time.Minute, err)
	}
}

// A forwarder may be stopped, or lose its network, at any moment.
func TestAStoppedCheckpointReleasesItsLane(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	s := openStore(t, db, postgres.Config{})
	next := make(chan error, 1)
	err := s.Checkpoint(t.Context(), store.Checkpoint{Lease: acquire(t, s, "a"), TTL: time.Second, Number: 1, InTx: func(context.Context, *sql.Tx) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := db.ExecContext(ctx, `UPDATE outbox_cursors SET updated_at = now()`)
		next <- err
		return nil
	}})
	require.NoError(t, <-next)
	require.Error(t, err)
}

func TestALongStatementIsNotADeadConnection(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := db.ExecContext(ctx, `SELECT pg_sleep(2.5)`) // longer than all limits of an interruption together
	require.NoError(t, err)
}

func TestASessionThatTheServerEndedBecauseItWasIdleIsReplacedUnnoticed(t *testing.T) {
	// The time is long beside the pauses of a busy machine between connecting and the first statement.
	t.Parallel()
	dsn := postgrestest.DSN(t)
	watcher, db := openDB(t, dsn), openDB(t, with(t, dsn, "idle_session_timeout", "2000"))
	for _, use := range []func() error{
		func() error { return db.QueryRowContext(t.Context(), `SELECT $1::int`, 1).Err() },
		func() error { _, err := db.ExecContext(t.Context(), `SELECT 1`); return err },
		func() error {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			return tx.Rollback()
		},
	} {
		var pid int
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
		require.Eventually(t, func() bool {
			var lives bool
			require.NoError(t, watcher.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, pid).Scan(&lives))
			return !lives
		}, patience, 10*time.Millisecond)
		require.NoError(t, use())
	}
}

func TestACancelledStatementReturnsTheServersError(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	for start := time.Now(); ; { // on a machine that stalls, the context or the connection may end first
		require.NoError(t, db.PingContext(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), deadline)
		_, err := db.ExecContext(ctx, `SELECT pg_sleep(30)`)
		cancel()
		if pq.As(err, "57014") != nil {
			break
		}
		require.Less(t, time.Since(start), patience, "%v", err)
	}
	require.NoError(t, db.PingContext(t.Context()))
}

func TestConnectingToASilentServerTimesOut(t *testing.T) {
	t.Parallel()
	p, _, _, _ := behindProxy(t)
	p.Swallow()
	db := openDB(t, "postgres://postgres@"+p.Address()+"/postgres?sslmode=disable&connect_timeout=1")
	ended := make(chan error, 1)
	go func() { ended <- db.PingContext(t.Context()) }()
	err, ok := endsSoon(ended)
	require.True(t, ok)
	require.Error(t, err)
	t.Log(err)
}

// standby returns a primary with a migrated outbox, and its standby.
func standby(t testing.TB) (primary, standby *postgrestest.Server) {
	t.Helper()
	primary, err := postgrestest.Start(t.Context(), postgrestest.Options{Private: true, Settings: map[string]string{"shared_buffers": "16MB"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, primary.Stop()) })
	s := openStore(t, openDB(t, primary.DSN()), postgres.Config{})
	_, err = s.Cut(t.Context(), "a statement", 1, store.StartOldest)
	require.NoError(t, err)
	standby, err = primary.Standby(t.Context())
	if errors.Is(err, postgrestest.ErrNoProgram) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Stop()) })
	return primary, standby
}

func TestConnectionsToAReadOnlyServerAreReplaced(t *testing.T) {
	t.Parallel()
	primary, standby := standby(t)
	p := postgrestest.StartProxy(t, standby.DSN())
	const idle = 5
	for name, write := range map[string]func(*postgres.Store, string) error{
		"a statement": func(s *postgres.Store, owner string) error {
			_, err := s.Acquire(t.Context(), store.Lanes(owner, 1)[0], owner, time.Hour)
			return err
		},
		"a transaction": func(s *postgres.Store, owner string) error {
			err := s.Checkpoint(t.Context(), store.Checkpoint{Lease: store.Lease{Lane: store.Lanes(owner, 1)[0], Owner: owner},
				TTL: time.Hour, Number: 1, InTx: hookOf(`SELECT`)})
			if errors.Is(err, store.ErrLeaseLost) {
				return nil // this connection could have written
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, p.Retarget(standby.DSN()))
			db := openDB(t, p.DSN())
			db.SetMaxIdleConns(idle)
			s, err := postgres.Open(t.Context(), db, postgres.Config{})
			require.NoError(t, err)
			held := make([]*sql.Conn, idle)
			for i := range held {
				held[i], err = db.Conn(t.Context())
				require.NoError(t, err)
			}
			for _, c := range held {
				require.NoError(t, c.Close())
			}
			require.Equal(t, idle, db.Stats().Idle)

			// The address moves to the primary; the pool's connections do not.
			require.NoError(t, p.Retarget(primary.DSN()))
			err = write(s, name)
			var advised *store.AdvisedError
			require.ErrorAs(t, err, &advised)
			require.Contains(t, advised.Hint, "target_session_attrs=read-write")
			require.NoError(t, write(s, name), "the next attempt dials again")
		})
	}
}

// A standby's snapshot lists no running transactions, so transactions that are open on the primary would
// seem to have ended without rows in the log.
func TestAProbeOfAStandbyIsRefusedAndTheConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	primary, standby := standby(t)
	p := postgrestest.StartProxy(t, standby.DSN())
	db := openDB(t, p.DSN())
	s, err := postgres.Open(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	_, err = s.Probe(t.Context())
	var advised *store.AdvisedError
	require.ErrorAs(t, err, &advised)
	require.Contains(t, advised.Hint, "target_session_attrs=read-write")
	require.NoError(t, p.Retarget(primary.DSN()))
	_ = probeOf(t, s)
}

// An address leads to two servers. One has granted the lease with the position; the other one answers.
func TestAReaderTakesTargetsOfTheServerThatGaveTheLease(t *testing.T) {
	t.Parallel()
	var stores [2]*postgres.Store
	var dbs [2]*sql.DB
	for i := range stores {
		dbs[i] = openDB(t, privateServer(t).DSN())
		stores[i] = openStore(t, dbs[i], postgres.Config{})
		inserter(t, dbs[i])("a")
	}
	l, err := lease(t, stores[0], store.Lanes("s", 1)[0])
	require.NoError(t, err)
	filter := everything
	filter.Server = l.Server
	for i, expected := range []error{nil, store.ErrServerChanged} {
		reader, err := stores[i].NewReader(l.Position, filter)
		require.NoError(t, err)
		target, err := stores[i].Probe(t.Context())
		require.NoError(t, err)
		_, err = reader.Next(t.Context(), target, 10)
		require.ErrorIs(t, err, expected)
	}
}

func TestAWriteInAReadOnlyTransactionKeepsTheConnections(t *testing.T) {
	t.Parallel()
	db := newDB(t)
	db.SetMaxOpenConns(1)
	pid := func() (pid int) {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
		return pid
	}
	before := pid()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), `CREATE TABLE nothing ()`)
	require.NotNil(t, pq.As(err, "25006"), "%v", err)
	require.NoError(t, tx.Rollback())
	require.Equal(t, before, pid())
}

func TestTheHostThatAcceptsWritesIsFound(t *testing.T) {
	t.Parallel()
	primary, standby := standby(t)
	a, err := url.Parse(standby.DSN())
	require.NoError(t, err)
	b, err := url.Parse(primary.DSN())
	require.NoError(t, err)
	db := openDB(t, "postgres://postgres@/postgres?host=127.0.0.1,127.0.0.1&port="+a.Port()+","+b.Port()+
		"&sslmode=disable&target_session_attrs=read-write")
	var recovering bool
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT pg_is_in_recovery()`).Scan(&recovering))
	require.False(t, recovering)
}

func TestAnAddressIsRefusedWithoutRepeatingItsPassword(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{"postgres://me:hunter2@[/db", "host=db password='x hunter2"} {
		_, err := postgres.OpenDB(dsn)
		require.ErrorContains(t, err, "cannot be parsed")
		require.NotContains(t, err.Error(), "hunter2")
	}
	_, err := postgres.OpenDB("postgres://me:hunter2@db/shop?sslmode=often")
	require.ErrorContains(t, err, "sslmode")
	require.NotContains(t, err.Error(), "hunter2")
}
