// Package pgxbatch publishes with pgx at no round trip of its own: what is published in a
// transaction travels to PostgreSQL together with the transaction's next statement, or with
// its COMMIT. It is a module of its own, since pgx is no dependency of Waybill.
//
//	db := pgxbatch.Pool(pool)
//	err := outbox.RunInPgx(ctx, publisher, db, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, `INSERT INTO orders …`); err != nil {
//			return err
//		}
//		return publisher.Publish(ctx, outbox.Pgx(tx), OrderPlaced{ID: "o-17"})
//	})
//
// The order of statements is that of the program: rows that are published are there for the
// transaction's own queries behind it, and go with a savepoint that is rolled back. One thing
// differs: an INSERT that the database refuses is an error of the statement behind Publish, or
// of the commit, and begins with "append to the outbox:". What Publish itself refuses, and a
// uniqueness key that is taken, are errors of Publish as ever.
package pgxbatch

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/framework/outbox"
)

// DB begins transactions that hold back what is published in them. It is safe for
// concurrent use if what it was made of is. [Pool] and [Conn] make it.
type DB struct {
	pool *pgxpool.Pool // nil: the one connection
	conn *pgx.Conn
}

var _ outbox.PgxDB[pgx.Tx, pgx.TxOptions] = DB{}

// Pool returns a DB whose transactions each have a connection of the pool, which the end of
// the transaction gives back.
func Pool(pool *pgxpool.Pool) DB { return DB{pool: pool} }

// Conn returns a DB of one connection, which stays open.
func Conn(conn *pgx.Conn) DB { return DB{conn: conn} }

// BeginTx begins a transaction. As with pgx, the context counts for the beginning only.
func (d DB) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	if d.pool == nil && d.conn == nil {
		return nil, errors.New("pgxbatch: there is no pool and no connection to begin a transaction on")
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
