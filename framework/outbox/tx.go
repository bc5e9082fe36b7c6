package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
)

// Tx is a database transaction of the caller's: a *sql.Tx or what wraps one. It
// must also have the methods Commit and Rollback, which are never called here:
// they distinguish a transaction from a database, whose statements would each
// commit by themselves. A transaction of pgx's own becomes one with [Pgx].
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// CheckTx returns the transaction to write in, as Publish does: tx itself, or the *sql.Tx
// inside of bun's Tx. It refuses what is none with ErrNotTransaction. It is for code that
// writes beside Publish, such as the inbox.
func CheckTx(tx Tx) (Tx, error) {
	if isNil(tx) {
		return nil, fmt.Errorf("%w: tx is nil: begin a transaction and pass that, or use RunInTx", ErrNotTransaction)
	}
	switch tx.(type) {
	case *sql.Tx, pgxTx:
		return tx, nil
	case interface {
		Commit() error
		Rollback() error
	}:
		if inside, formats := insideBun(tx); formats {
			return CheckTx(inside)
		}
		return tx, nil
	}
	return nil, fmt.Errorf("%w: a %T commits each statement by itself, so what is written could exist without your data, or your data without it: begin a transaction and pass that, or use RunInTx",
		ErrNotTransaction, tx)
}

// isNil reports whether v is nil, or a nil pointer.
func isNil(v any) bool {
	if t, wrapped := v.(pgxTx); wrapped {
		v = t.inside()
	}
	value := reflect.ValueOf(v)
	return !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil()
}

// insideBun returns the transaction inside of bun's, which takes each ? of a statement
// for a parameter and knows no $1.
func insideBun(tx Tx) (inside *sql.Tx, formats bool) {
	v := reflect.Indirect(reflect.ValueOf(tx))
	if v.Type().PkgPath() != "github.com/uptrace/bun" || v.Kind() != reflect.Struct {
		return nil, false
	}
	field := v.FieldByName("Tx")
	if !field.IsValid() {
		return nil, false
	}
	inside, formats = field.Interface().(*sql.Tx)
	return inside, formats
}

// explain adds the way out to an error of a transaction.
func explain(err error) error {
	if err == nil || !errors.Is(err, sql.ErrTxDone) && !isPgxClosed(err) {
		return err
	}
	return fmt.Errorf("%w: publish before its commit or rollback, which the end of its context brings too: %w", ErrTxOver, err)
}

// InTx runs f in a transaction of db: it commits if f returns nil, and rolls back if f
// returns an error, which comes back as it is, or panics. Options are those of
// [sql.DB.BeginTx]; nil has the database's defaults. Nothing is repeated. It announces
// nothing: see [Publisher.RunInTx].
func InTx(ctx context.Context, db *sql.DB, options *sql.TxOptions, f func(ctx context.Context, tx *sql.Tx) error) error {
	if db == nil {
		return errNoDatabase
	}
	tx, err := db.BeginTx(ctx, options)
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
