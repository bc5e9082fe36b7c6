package peer

import (
	"context"
	"database/sql"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/benchmarks/peers/workload"
)

// withPool opens a pool for one call of use.
func withPool(ctx context.Context, dsn string, connections int32, use func(pool *pgxpool.Pool) error) error {
	pool, err := openPool(ctx, dsn, connections)
	if err != nil {
		return err
	}
	defer pool.Close()
	return use(pool)
}

func openPool(ctx context.Context, dsn string, connections int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.MinIdleConns = connections, connections
	return pgxpool.NewWithConfig(ctx, config)
}

// pgxTransactions runs business transactions through pgx.
type pgxTransactions struct {
	pool  *pgxpool.Pool
	db    *sql.DB // handle that uses the pool, if the publisher needs one
	begin func(ctx context.Context) (pgx.Tx, error)
	// append, if set, writes the order in the transaction.
	append func(ctx context.Context, tx pgx.Tx, o workload.Order) error
	// committed, if set, is called after each commit.
	committed func()
}

func openPgxTransactions(ctx context.Context, dsn string, clients int) (*pgxTransactions, error) {
	pool, err := openPool(ctx, dsn, int32(clients))
	if err != nil {
		return nil, err
	}
	return &pgxTransactions{pool: pool, begin: pool.Begin}, nil
}

func (t *pgxTransactions) Publish(ctx context.Context, number int) (committing time.Time, err error) {
	tx, err := t.begin(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after the commit
	o := workload.New(number)
	if _, err := tx.Exec(ctx, insertBusiness, businessRow(number, o)...); err != nil {
		return time.Time{}, err
	}
	if t.append != nil {
		if err := t.append(ctx, tx, o); err != nil {
			return time.Time{}, err
		}
	}
	committing = time.Now()
	if err := tx.Commit(ctx); err != nil {
		return time.Time{}, err
	}
	if t.committed != nil {
		t.committed()
	}
	return committing, nil
}

func (t *pgxTransactions) Close() (err error) {
	if t.db != nil {
		err = t.db.Close()
	}
	t.pool.Close()
	return err
}

// batched runs business transactions through pgx, with one more INSERT and the COMMIT in one batch.
type batched struct {
	pool   *pgxpool.Pool
	insert string
	row    func(number int, o workload.Order) []any
}

func (b batched) Publish(ctx context.Context, number int) (committing time.Time, err error) {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer conn.Release() // closes the connection if a transaction is open
	o := workload.New(number)
	if _, err := conn.Exec(ctx, "begin"); err != nil {
		return time.Time{}, err
	}
	if _, err := conn.Exec(ctx, insertBusiness, businessRow(number, o)...); err != nil {
		return time.Time{}, err
	}
	batch := new(pgx.Batch)
	batch.Queue(b.insert, b.row(number, o)...)
	batch.Queue("commit")
	committing = time.Now()
	return committing, conn.SendBatch(ctx, batch).Close()
}

func (b batched) Close() error {
	b.pool.Close()
	return nil
}
