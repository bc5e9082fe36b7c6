package drivers

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/registry"
)

// unitOfPgx is a transaction of pgx, or a savepoint in one.
func unitOfPgx(ctx context.Context, tx pgx.Tx) unit {
	return unit{
		tx: outbox.Pgx(tx),
		insert: func(order string) error {
			_, err := tx.Exec(ctx, `INSERT INTO orders VALUES ($1, 'kite')`, order)
			return err
		},
		nested: func(f func(unit) error) error {
			return pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error { return f(unitOfPgx(ctx, savepoint)) })
		},
	}
}

func TestPgxPool(t *testing.T) {
	t.Parallel()
	pool, db := newPool(t)
	s := onPostgres(t, db)
	s.check(t, true, func(ctx context.Context, f func(unit) error) error {
		return outbox.RunInPgx(ctx, s.publisher, pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
			return f(unitOfPgx(ctx, tx))
		})
	})
}

// A program that begins and commits its own transactions calls Announce.
func TestPgxConnection(t *testing.T) {
	t.Parallel()
	pool, db := newPool(t)
	s := onPostgres(t, db)
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	s.check(t, false, func(ctx context.Context, f func(unit) error) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return f(unitOfPgx(ctx, tx)) })
	})
}

// Transaction poolers require some of these modes. A column of bytes stores any payload.
func TestPgxExecutesInEveryMode(t *testing.T) {
	t.Parallel()
	pool, db := newPool(t)
	s := onPostgres(t, db)
	bytes := postgres.Config{Prefix: "bytes", Payload: postgres.PayloadBytes, PartitionRows: 2}
	_, err := postgres.Migrate(t.Context(), db, bytes)
	require.NoError(t, err)
	log, err := postgres.Open(t.Context(), db, bytes)
	require.NoError(t, err)
	publisher, err := outbox.New(registry.New(), log, outbox.Config{})
	require.NoError(t, err)
	payload := []byte("\x00\xff'\\")
	config := pool.Config().ConnConfig
	for mode := pgx.QueryExecModeCacheStatement; mode <= pgx.QueryExecModeSimpleProtocol; mode++ {
		config.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(t.Context(), config)
		require.NoError(t, err)
		require.NoError(t, outbox.RunInPgx(t.Context(), s.publisher, conn, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(
				s.publisher.Publish(ctx, outbox.Pgx(tx), OrderPlaced{Order: mode.String(), Product: `"kite" \ ? $1`}),
				publisher.Append(ctx, outbox.Pgx(tx), notification.Envelope{Type: "t", Payload: payload}, notification.Envelope{Type: "empty"}))
		}), mode)
		require.NoError(t, conn.Close(t.Context()))
	}
	require.Len(t, s.column(t, `SELECT key FROM outbox WHERE payload ->> 'Product' = '"kite" \ ? $1'`), 5)
	var same, empty int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE payload = $1), count(*) FILTER (WHERE payload = '') FROM bytes`, payload).Scan(&same, &empty))
	require.Equal(t, []int{5, 5}, []int{same, empty})
}

func TestPgxTransactionsHaveTheRequestedOptions(t *testing.T) {
	t.Parallel()
	pool, db := newPool(t)
	s := onPostgres(t, db)
	ctx := t.Context()
	s.refuses(t, outbox.Pgx(pgx.Tx(nil)), outbox.Pgx((*pgxpool.Tx)(nil)))
	require.ErrorContains(t, outbox.RunInPgx(ctx, s.publisher, (*pgxpool.Pool)(nil), pgx.TxOptions{}, func(context.Context, pgx.Tx) error { return nil }), "db is nil")

	err := outbox.RunInPgx(ctx, s.publisher, pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(ctx context.Context, tx pgx.Tx) error {
		return s.publisher.Publish(ctx, outbox.Pgx(tx), OrderPlaced{})
	})
	require.ErrorContains(t, err, "read-only")

	require.Panics(t, func() {
		_ = outbox.RunInPgx(ctx, s.publisher, pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
			require.NoError(t, s.place(ctx, unitOfPgx(ctx, tx), "o"))
			panic("bug")
		})
	})

	_, err = pool.Exec(ctx, `ALTER TABLE orders ADD parent text REFERENCES orders DEFERRABLE INITIALLY DEFERRED`)
	require.NoError(t, err)
	err = outbox.RunInPgx(ctx, s.publisher, pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO orders VALUES ('o', 'kite', 'none')`)
		require.NoError(t, err)
		return s.publisher.Publish(ctx, outbox.Pgx(tx), OrderPlaced{})
	})
	require.ErrorContains(t, err, "commit: ")

	// The commit reports a failed statement even if its error was ignored.
	err = outbox.RunInPgx(ctx, s.publisher, pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		require.NoError(t, s.publisher.Publish(ctx, outbox.Pgx(tx), OrderPlaced{}))
		_, err := tx.Exec(ctx, `SELECT 1 / 0`)
		require.Error(t, err)
		return nil
	})
	require.ErrorIs(t, err, pgx.ErrTxCommitRollback)
	// A context that ends before the commit rolls the transaction back.
	ending, end := context.WithCancel(ctx)
	err = outbox.RunInPgx(ending, s.publisher, pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		err := s.place(ctx, unitOfPgx(ctx, tx), "o")
		end()
		return err
	})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "commit: ")
	require.Zero(t, s.wakes.Load())
	s.holds(t)

	// The same holds if the closure publishes with another context.
	require.NoError(t, outbox.RunInPgx(ctx, s.publisher, pool, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(_ context.Context, tx pgx.Tx) error {
		return s.place(context.Background(), unitOfPgx(ctx, tx), "o")
	}))
	require.EqualValues(t, 1, s.wakes.Load())
	requireGivenBack(t, pool)
}
