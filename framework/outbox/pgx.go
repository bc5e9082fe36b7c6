package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
)

// PgxTx is a pgx transaction: a pgx.Tx, a *pgxpool.Tx, or a wrapper of one. Tag is its
// pgconn.CommandTag. Go infers both, so a program names neither.
type PgxTx[Tag PgxTag] interface {
	Exec(ctx context.Context, sql string, args ...any) (Tag, error)
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// PgxTag is the result of a pgx statement.
type PgxTag interface{ RowsAffected() int64 }

// PgxDB begins pgx transactions: a *pgxpool.Pool, *pgxpool.Conn or *pgx.Conn, with
// pgx.TxOptions.
type PgxDB[Tx, Options any] interface {
	BeginTx(ctx context.Context, options Options) (Tx, error)
}

// HoldingTx is a pgx transaction that can hold statements back and send them together with
// the next ones: a transaction of package framework/waybillpgx/pgxbatch.
type HoldingTx interface {
	// Hold sends a statement together with, and ahead of, the transaction's next statement or
	// its commit. If the held statement fails, the error of that next statement or commit is
	// what explain returns for it. Hold itself fails only if the transaction is over.
	Hold(ctx context.Context, explain func(error) error, sql string, args ...any) error
}

// Pgx returns a pgx transaction as a [Tx] to publish in:
//
//	err := publisher.Publish(ctx, outbox.Pgx(tx), OrderPlaced{ID: "o-17"})
//
// It works with the inbox too. It neither commits nor rolls back: end tx as usual, and call
// [Publisher.Announce] after the commit. [RunInPgx] does both.
//
// If tx is a [HoldingTx], published notifications are sent with its next statement or commit.
func Pgx[Tag PgxTag](tx PgxTx[Tag]) Tx { return adaptedPgx[Tag]{tx} }

// RunInPgx runs f in a pgx transaction, with the guarantees of [Publisher.RunInTx]: it
// commits if f returns nil, and rolls back if f panics or returns an error, which it returns
// unchanged. It does not retry. It announces a commit that published something.
// pgx.TxOptions{} means the database's defaults.
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
		defer func() { _ = tx.Rollback(ctx) }() // no effect after the commit
		if err := f(ctx, tx); err != nil {
			return err
		}
		if err := failpoint.Transaction.Do(func() error { return tx.Commit(ctx) }); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		return nil
	})
}

// pgxTx is a pgx transaction with any tag.
type pgxTx interface {
	Tx
	inside() any
	holding() HoldingTx // nil: it executes statements at once
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

// pgxResult is the number of rows that a statement wrote.
type pgxResult int64

func (r pgxResult) RowsAffected() (int64, error) { return int64(r), nil }

// LastInsertId fails: PostgreSQL has no such number.
func (pgxResult) LastInsertId() (int64, error) {
	return 0, errors.New("PostgreSQL has no last insert id")
}

// isPgxClosed reports whether err is pgx.ErrTxClosed. That error has no separate type, so a
// package that does not import pgx can recognize it only by its text.
func isPgxClosed(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if err.Error() == "tx is closed" {
			return true
		}
	}
	return false
}
