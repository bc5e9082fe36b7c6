package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// PgxTx is a transaction of pgx: a pgx.Tx, a *pgxpool.Tx, or what wraps one. Tag is its
// pgconn.CommandTag. Go infers both, so a program names neither.
type PgxTx[Tag PgxTag] interface {
	Exec(ctx context.Context, sql string, args ...any) (Tag, error)
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// PgxTag is what a statement of pgx returns.
type PgxTag interface{ RowsAffected() int64 }

// PgxDB begins transactions of pgx: a *pgxpool.Pool, *pgxpool.Conn or *pgx.Conn, with
// pgx.TxOptions.
type PgxDB[Tx, Options any] interface {
	BeginTx(ctx context.Context, options Options) (Tx, error)
}

// HoldingTx is a transaction of pgx that can hold statements back, to send them together
// with what follows: those of the module framework/outbox/pgxbatch.
type HoldingTx interface {
	// Hold sends a statement together with the transaction's next one, or with its commit,
	// and ahead of it. What that returns where the statement failed is the error as
	// explain has made it. Hold fails only if the transaction is over.
	Hold(ctx context.Context, explain func(error) error, sql string, args ...any) error
}

// Pgx returns a transaction of pgx as one to publish in:
//
//	err := publisher.Publish(ctx, outbox.Pgx(tx), OrderPlaced{ID: "o-17"})
//
// The inbox takes it too. It commits and rolls back nothing: that stays with tx, and
// [Publisher.Announce] follows the commit. [RunInPgx] does both.
//
// Where tx is a [HoldingTx], what is published goes with its next statement or its commit.
func Pgx[Tag PgxTag](tx PgxTx[Tag]) Tx { return adaptedPgx[Tag]{tx} }

// RunInPgx runs f in a transaction of pgx, with the promises of [Publisher.RunInTx]: it
// commits if f returns nil, rolls back if f returns an error, which comes back as it is, or
// panics, repeats nothing, and announces a commit of what was published. pgx.TxOptions{}
// has the database's defaults.
//
//	err := outbox.RunInPgx(ctx, publisher, pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, `INSERT INTO orders …`); err != nil {
//			return err
//		}
//		return publisher.Publish(ctx, outbox.Pgx(tx), OrderPlaced{ID: "o-17"})
//	})
//
// A nil publisher announces nothing.
func RunInPgx[Tx PgxTx[Tag], Tag PgxTag, Options any](ctx context.Context, p *Publisher, db PgxDB[Tx, Options], options Options, f func(ctx context.Context, tx Tx) error) error {
	return p.announcing(func() error {
		if isNil(db) {
			return errNoDatabase
		}
		tx, err := db.BeginTx(ctx, options)
		if err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		defer func() { _ = tx.Rollback(ctx) }() // of no effect behind the commit
		if err := f(ctx, tx); err != nil {
			return err
		}
		if err := tx.Commit(ctx); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		return nil
	})
}

// pgxTx is a transaction of pgx with any tag.
type pgxTx interface {
	Tx
	inside() any
	holding() HoldingTx // nil: it executes at once
}

type adaptedPgx[Tag PgxTag] struct{ tx PgxTx[Tag] }

func (a adaptedPgx[Tag]) inside() any { return a.tx }

func (a adaptedPgx[Tag]) holding() HoldingTx {
	h, _ := a.tx.(HoldingTx)
	return h
}

// ExecContext executes a statement.
func (a adaptedPgx[Tag]) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := a.tx.Exec(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgxResult(tag.RowsAffected()), nil
}

// pgxResult is how many rows a statement wrote.
type pgxResult int64

func (r pgxResult) RowsAffected() (int64, error) { return int64(r), nil }

// LastInsertId is nothing that PostgreSQL has.
func (pgxResult) LastInsertId() (int64, error) {
	return 0, errors.New("PostgreSQL has no last insert id")
}

// isPgxClosed reports whether err is pgx.ErrTxClosed, which has no type of its own: a
// package that does not import pgx can only know it by its text.
func isPgxClosed(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if err.Error() == "tx is closed" {
			return true
		}
	}
	return false
}
