package drivers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/waybillpgx/pgxbatch"
)

func TestPgxBatchPool(t *testing.T) {
	t.Parallel()
	pool, db := newPool(t)
	s := onPostgres(t, db)
	s.check(t, true, func(ctx context.Context, f func(unit) error) error {
		return outbox.RunInPgx(ctx, s.publisher, pgxbatch.Pool(pool), pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
			return f(unitOfPgx(ctx, tx))
		})
	})
	requireGivenBack(t, pool)
}

func TestPgxBatchConnection(t *testing.T) {
	t.Parallel()
	pool, db := newPool(t)
	s := onPostgres(t, db)
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	s.check(t, false, func(ctx context.Context, f func(unit) error) error {
		return pgx.BeginTxFunc(ctx, pgxbatch.Conn(conn), pgx.TxOptions{}, func(tx pgx.Tx) error { return f(unitOfPgx(ctx, tx)) })
	})
}

// refusing makes the database refuse notifications with the key "refused".
func refusing(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `ALTER TABLE outbox ADD CONSTRAINT nothing_refused CHECK (key <> 'refused')`)
	require.NoError(t, err)
}

func requireRefused(t *testing.T, err error) {
	t.Helper()
	require.ErrorContains(t, err, "append to the outbox: ")
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "23514", refused.Code)
}

// In each protocol, the server skips a COMMIT after a failed statement.
func TestPgxBatchCommitsAllOrNothingInEveryMode(t *testing.T) {
	t.Parallel()
	pool, db := newPool(t)
	s := onPostgres(t, db)
	refusing(t, pool)
	config := pool.Config().ConnConfig
	var placed []string
	for mode := pgx.QueryExecModeCacheStatement; mode <= pgx.QueryExecModeSimpleProtocol; mode++ {
		config.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(t.Context(), config)
		require.NoError(t, err)
		for range 3 { // the first round prepares the statements
			for _, keys := range [][]string{{"refused"}, {"a", "refused"}, {"refused", "a"}} {
				err := s.placeIn(t, pgxbatch.Conn(conn), "none", keys...)
				requireRefused(t, err)
				require.ErrorContains(t, err, "commit: ")
				require.Equal(t, byte('I'), conn.PgConn().TxStatus())
			}
			order := fmt.Sprint(mode, len(placed))
			require.NoError(t, s.placeIn(t, pgxbatch.Conn(conn), order, order))
			placed = append(placed, order)
		}
		require.NoError(t, conn.Close(t.Context()))
	}
	require.EqualValues(t, len(placed), s.wakes.Load())
	s.holds(t, placed...)
}

// placeIn writes an order and publishes one notification for each key.
func (s *shop) placeIn(t testing.TB, db pgxbatch.DB, order string, keys ...string) error {
	return outbox.RunInPgx(t.Context(), s.publisher, db, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO orders VALUES ($1, 'kite')`, order)
		require.NoError(t, err)
		for _, key := range keys {
			require.NoError(t, s.publisher.Publish(ctx, outbox.Pgx(tx), OrderPlaced{Order: key}))
		}
		return nil
	})
}

// writes counts the writes of a connection: one for each round trip.
type writes struct {
	net.Conn
	n *atomic.Int64
}

func (w writes) Write(b []byte) (int, error) {
	w.n.Add(1)
	return w.Conn.Write(b)
}

func TestPgxBatchSpendsNoRoundTripOnPublishing(t *testing.T) {
	t.Parallel()
	pool, db := newPool(t)
	s := onPostgres(t, db)
	config := pool.Config().ConnConfig
	var n atomic.Int64
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return writes{conn, &n}, err
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	trips := func(order string, keys ...string) int64 {
		before := n.Load()
		require.NoError(t, s.placeIn(t, pgxbatch.Conn(conn), order, keys...))
		return n.Load() - before
	}
	trips("prepares", "prepares")
	require.EqualValues(t, 3, trips("alone"), "BEGIN, INSERT, COMMIT")
	require.EqualValues(t, 3, trips("o", "o"))
	require.EqualValues(t, 3, trips("p", "p", "q", "r"))
	require.Equal(t, []string{"prepares", "o", "p", "q", "r"}, s.column(t, `SELECT key FROM outbox ORDER BY "offset"`))
}

func TestPgxBatchKeepsTheOrderOfStatements(t *testing.T) {
	t.Parallel()
	pool, db := newPool(t)
	s := onPostgres(t, db)
	ctx := t.Context()
	batched := pgxbatch.Pool(pool)
	publish := func(tx pgx.Tx, key string) {
		require.NoError(t, s.publisher.Publish(ctx, outbox.Pgx(tx), OrderPlaced{Order: key}))
	}
	count := func(tx pgx.Tx) (n int) {
		require.NoError(t, tx.QueryRow(ctx, `SELECT count(*) FROM outbox`).Scan(&n))
		return n
	}
	require.NoError(t, outbox.RunInPgx(ctx, s.publisher, batched, pgx.TxOptions{}, func(_ context.Context, tx pgx.Tx) error {
		publish(tx, "a")
		require.Equal(t, 1, count(tx))

		// The program's own SQL makes a savepoint.
		_, err := tx.Exec(ctx, `SAVEPOINT own`)
		require.NoError(t, err)
		publish(tx, "undone by SQL")
		_, err = tx.Exec(ctx, `ROLLBACK TO own`)
		require.NoError(t, err)

		publish(tx, "b")
		savepoint, err := tx.Begin(ctx)
		require.NoError(t, err)
		publish(tx, "undone, published outside")
		publish(savepoint, "undone")
		require.NoError(t, savepoint.Rollback(ctx))
		require.Error(t, s.publisher.Publish(ctx, outbox.Pgx(savepoint), OrderPlaced{Order: "over"}))

		savepoint, err = tx.Begin(ctx)
		require.NoError(t, err)
		publish(savepoint, "c")
		require.NoError(t, savepoint.Commit(ctx))
		publish(tx, "d")
		require.ErrorIs(t, savepoint.Rollback(ctx), pgx.ErrTxClosed, "like a deferred constraint")

		// Statements on the connection itself do not wait for held statements.
		n := 0
		require.NoError(t, tx.Conn().QueryRow(ctx, `SELECT count(*) FROM outbox`).Scan(&n))
		require.Equal(t, 4, n)
		publish(tx, "e")
		require.NoError(t, tx.Conn().QueryRow(ctx, `SELECT count(*) FROM outbox`).Scan(&n))
		require.Equal(t, 5, n)
		return nil
	}))
	s.holdsPublished(t, "a", "b", "c", "d", "e")

	// Every operation of a transaction sees what the transaction published before.
	var over pgx.Tx
	require.NoError(t, outbox.RunInPgx(ctx, s.publisher, batched, pgx.TxOptions{CommitQuery: "COMMIT AND NO CHAIN"}, func(_ context.Context, tx pgx.Tx) error {
		over = tx
		publish(tx, "f")
		results := tx.SendBatch(ctx, &pgx.Batch{QueuedQueries: []*pgx.QueuedQuery{{SQL: `SELECT count(*) FROM outbox`}}})
		n := 0
		require.NoError(t, results.QueryRow().Scan(&n))
		require.NoError(t, results.Close())
		require.Equal(t, 6, n)
		publish(tx, "g")
		_, err := tx.Prepare(ctx, "counts", `SELECT count(*) FROM outbox`)
		require.NoError(t, err)
		publish(tx, "h")
		rows, err := tx.Query(ctx, `SELECT key FROM outbox WHERE key = 'h'`)
		require.NoError(t, err)
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Equal(t, []string{"h"}, found)
		publish(tx, "i")
		_, err = tx.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"id"}, pgx.CopyFromRows([][]any{{"copied"}}))
		require.NoError(t, err)
		publish(tx, "j")
		return nil
	}))
	s.holdsPublished(t, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
	requireOver(t, over)

	// This publishes in many calls and in large ones.
	many := make([]any, 500)
	for i := range many {
		many[i] = OrderPlaced{Order: "many"}
	}
	require.NoError(t, outbox.RunInPgx(ctx, s.publisher, batched, pgx.TxOptions{}, func(_ context.Context, tx pgx.Tx) error {
		over = tx
		for i := range 150 {
			publish(tx, fmt.Sprint("k-", i))
		}
		return s.publisher.Publish(ctx, outbox.Pgx(tx), many...)
	}))
	got := s.column(t, `SELECT key FROM outbox ORDER BY "offset"`)
	require.Len(t, got, 10+150+500)
	for i := range 150 {
		require.Equal(t, fmt.Sprint("k-", i), got[10+i])
	}
	requireOver(t, over)
	requireGivenBack(t, pool)
}

// holdsPublished checks the published keys and their order.
func (s *shop) holdsPublished(t testing.TB, keys ...string) {
	t.Helper()
	require.Equal(t, append([]string{}, keys...), s.column(t, `SELECT key FROM outbox ORDER BY "offset"`))
}

// requireOver checks that a transaction refuses everything once its connection may serve others.
func requireOver(t *testing.T, tx pgx.Tx) {
	t.Helper()
	ctx := t.Context()
	_, err := tx.Exec(ctx, `SELECT 1`)
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	rows, err := tx.Query(ctx, `SELECT 1`)
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	require.ErrorIs(t, rows.Err(), pgx.ErrTxClosed)
	require.False(t, rows.Next())
	require.ErrorIs(t, tx.QueryRow(ctx, `SELECT 1`).Scan(new(int)), pgx.ErrTxClosed)
	require.ErrorIs(t, tx.SendBatch(ctx, &pgx.Batch{}).Close(), pgx.ErrTxClosed)
	_, err = tx.Begin(ctx)
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	_, err = tx.Prepare(ctx, "p", `SELECT 1`)
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"id"}, pgx.CopyFromRows(nil))
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	require.ErrorIs(t, tx.Commit(ctx), pgx.ErrTxClosed)
	require.ErrorIs(t, tx.Rollback(ctx), pgx.ErrTxClosed)
}

func TestPgxBatchLosesNothingSilently(t *testing.T) {
	t.Parallel()
	pool, db := newPool(t)
	s := onPostgres(t, db)
	refusing(t, pool)
	ctx := t.Context()
	batched := pgxbatch.Pool(pool)
	run := func(f func(ctx context.Context, tx pgx.Tx) error) error {
		return outbox.RunInPgx(ctx, s.publisher, batched, pgx.TxOptions{}, f)
	}
	publish := func(tx pgx.Tx, key string) {
		require.NoError(t, s.publisher.Publish(ctx, outbox.Pgx(tx), OrderPlaced{Order: key}))
	}

	// The next statement reports the error, and so does the commit if the program ignores that error.
	requireRefused(t, run(func(ctx context.Context, tx pgx.Tx) error {
		publish(tx, "refused")
		_, err := tx.Exec(ctx, `INSERT INTO orders VALUES ('o', 'kite')`)
		requireRefused(t, err)
		return nil
	}))
	// The server did not get an INSERT whose context had ended, so it could commit the rest.
	err := run(func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO orders VALUES ('o', 'kite')`)
		require.NoError(t, err)
		publish(tx, "not sent")
		ended, end := context.WithCancel(ctx)
		end()
		_, err = tx.Exec(ended, `SELECT 1`)
		require.ErrorIs(t, err, context.Canceled)
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	// A broken transaction accepts nothing.
	require.Error(t, run(func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT 1 / 0`)
		require.Error(t, err)
		publish(tx, "o")
		return nil
	}))
	require.ErrorIs(t, run(func(ctx context.Context, tx pgx.Tx) error {
		publish(tx, "o")
		_, err := tx.Exec(ctx, `SELECT 1 / 0`)
		require.Error(t, err)
		return nil
	}), pgx.ErrTxCommitRollback)
	requireRefused(t, run(func(_ context.Context, tx pgx.Tx) error {
		publish(tx, "refused")
		_ = tx.LargeObjects()
		return nil
	}))
	ending, end := context.WithCancel(ctx)
	err = outbox.RunInPgx(ending, s.publisher, batched, pgx.TxOptions{}, func(_ context.Context, tx pgx.Tx) error {
		publish(tx, "o")
		end()
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Error(t, run(func(ctx context.Context, tx pgx.Tx) error {
		publish(tx, "o")
		_, err := pool.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()`)
		require.NoError(t, err)
		require.Eventually(t, func() bool { // until the session ends, asynchronously
			var left int
			require.NoError(t, pool.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()`).Scan(&left))
			return left == 0
		}, time.Minute, time.Millisecond)
		return nil
	}))
	require.Panics(t, func() {
		_ = run(func(_ context.Context, tx pgx.Tx) error {
			publish(tx, "o")
			panic("bug")
		})
	})
	_, err = pool.Exec(ctx, `ALTER TABLE orders ADD parent text REFERENCES orders DEFERRABLE INITIALLY DEFERRED`)
	require.NoError(t, err)
	require.ErrorContains(t, run(func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO orders VALUES ('o', 'kite', 'none')`)
		require.NoError(t, err)
		publish(tx, "o")
		return nil
	}), "commit: ERROR: insert or update on table")
	require.Zero(t, s.wakes.Load())
	requireGivenBack(t, pool)
	s.holds(t)

	// Rolling back to a savepoint before the error keeps the rest.
	require.NoError(t, run(func(ctx context.Context, tx pgx.Tx) error {
		requireRefused(t, pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error {
			publish(savepoint, "refused")
			return nil
		}))
		publish(tx, "saved")
		return nil
	}))
	s.holdsPublished(t, "saved")
}

// A duplicate is an error of Publish, after which the rest can be committed.
func TestPgxBatchReportsDuplicatesAtOnce(t *testing.T) {
	t.Parallel()
	pool, db := newPool(t)
	s := onPostgres(t, db)
	for range 2 {
		require.NoError(t, outbox.RunInPgx(t.Context(), s.publisher, pgxbatch.Pool(pool), pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
			tx1 := outbox.Pgx(tx)
			err := s.publisher.Publish(ctx, tx1, OrderPlaced{Order: "each time"})
			return errors.Join(err, ignoreDuplicate(s.publisher.Publish(ctx, tx1, outbox.With(OrderPlaced{Order: "once"}, outbox.Unique("once", time.Hour)))))
		}))
	}
	s.holdsPublished(t, "each time", "once", "each time")
}

func ignoreDuplicate(err error) error {
	if errors.Is(err, outbox.ErrDuplicate) {
		return nil
	}
	return err
}

func TestPgxBatchNeedsADatabase(t *testing.T) {
	t.Parallel()
	_, err := pgxbatch.Pool(nil).BeginTx(t.Context(), pgx.TxOptions{})
	require.ErrorContains(t, err, "no pool")
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	require.NoError(t, err)
	defer pool.Close()
	_, err = pgxbatch.Pool(pool).BeginTx(t.Context(), pgx.TxOptions{})
	require.Error(t, err)
}

// requireGivenBack waits until each connection is given back. The pool destroys broken ones in the background.
func requireGivenBack(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, time.Minute, time.Millisecond, "each connection should be given back")
}
