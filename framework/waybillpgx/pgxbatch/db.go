// Package pgxbatch publishes with pgx without extra round trips: notifications published in a
// transaction are sent to PostgreSQL together with the transaction's next statement or its
// COMMIT. Package waybillpgx, in the same module, uses it for whatever it begins.
//
//	db := pgxbatch.Pool(pool)
//	err := outbox.RunInPgx(ctx, publisher, db, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, `INSERT INTO orders …`); err != nil {
//			return err
//		}
//		return publisher.Publish(ctx, outbox.Pgx(tx), OrderPlaced{ID: "o-17"})
//	})
//
// Statements run in the program's order: later queries of the transaction see the published
// rows, and the rollback of a savepoint removes them. One thing differs: if the database
// refuses the INSERT, the error is returned not by Publish but by the next statement or the
// commit, and begins with "append to the outbox:". Publish still returns its own errors, and
// [outbox.ErrDuplicate].
package pgxbatch

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/framework/outbox"
)

// DB begins transactions that hold back published notifications. [Pool] and [Conn] make it.
// It is safe for concurrent use if the pool or connection is.
type DB struct {
	pool *pgxpool.Pool // nil: the one connection
	conn *pgx.Conn
}

var _ outbox.PgxDB[pgx.Tx, pgx.TxOptions] = DB{}

// Pool returns a DB whose transactions each take a connection of the pool and give it back
// when they end.
func Pool(pool *pgxpool.Pool) DB { return DB{pool: pool} }

// Conn returns a DB over one connection, which stays open.
func Conn(conn *pgx.Conn) DB { return DB{conn: conn} }

// BeginTx begins a transaction. As with pgx, the context applies only to the beginning.
func (d DB) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	if d.pool == nil && d.conn == nil {
		return nil, errors.New("pgxbatch: no pool or connection to begin a transaction on")
	}
	conn, release := d.conn, func() {}
	if d.pool != nil {
		acquired, err := d.pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		conn, release = acquired.Conn(), acquired.Release
	}
	plain, err := conn.BeginTx(ctx, options)
	if err != nil {
		release()
		return nil, err
	}
	return &tx{Tx: plain, held: &held{conn: conn, commit: options.CommitQuery, release: release}}, nil
}
