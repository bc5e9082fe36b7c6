package outbox

import (
	"context"
	"database/sql"
	"fmt"
)

// Tx is a database transaction of the caller's: a *sql.Tx or what wraps one. It
// must also have the methods Commit and Rollback, which are never called here:
// they distinguish a transaction from a database, whose statements would each
// commit by themselves.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// checkTx refuses what is no transaction.
func checkTx(tx Tx) error {
	switch tx := tx.(type) {
	case nil:
		return fmt.Errorf("%w: tx is nil", ErrNotTransaction)
	case *sql.Tx:
		if tx == nil {
			return fmt.Errorf("%w: tx is nil", ErrNotTransaction)
		}
		return nil
	case interface {
		Commit() error
		Rollback() error
	}:
		return nil
	}
	return fmt.Errorf("%w: a %T commits each statement by itself, so the notification could exist without your data, or your data without it: begin a transaction and pass that, or use RunInTx",
		ErrNotTransaction, tx)
}

// InTx runs f in a transaction of db: it commits if f returns nil, and rolls back if f
// returns an error, which comes back as it is, or panics. It announces nothing: see
// [Publisher.RunInTx].
func InTx(ctx context.Context, db *sql.DB, f func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // of no effect behind the commit
	if err := f(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// publishedKey is the context key under which RunInTx learns that something was
// published.
type publishedKey struct{}

func withPublished(ctx context.Context) (context.Context, *bool) {
	some := new(bool)
	return context.WithValue(ctx, publishedKey{}, some), some
}

func published(ctx context.Context) {
	if some, ok := ctx.Value(publishedKey{}).(*bool); ok {
		*some = true
	}
}
