package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
)

// Tx is the caller's database transaction: a *sql.Tx or a wrapper of one. It must also have
// the methods Commit and Rollback. This package never calls them: they distinguish a
// transaction from a database, which would commit each statement separately. [Pgx] turns a
// pgx transaction into a Tx.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// CheckTx returns the transaction to write in, as Publish does: tx itself, or the *sql.Tx
// inside of bun's Tx. It fails with ErrNotTransaction if tx is not a transaction. It is for
// code that writes beside Publish, such as the inbox.
func CheckTx(tx Tx) (Tx, error) {
	if isNil(tx) {
		return nil, fmt.Errorf("%w: tx is nil: begin a transaction and pass that, or use RunInTx (InTx in package waybill)", ErrNotTransaction)
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
	return nil, fmt.Errorf("%w: a %T commits each statement separately, so a notification could exist without your data, or your data without the notification: begin a transaction and pass that, or use RunInTx (InTx in package waybill)",
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

// insideBun returns the *sql.Tx inside of bun's Tx. Bun's Tx treats each ? in a statement as a
// parameter and does not know $1.
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

// preparedIn returns tx if the prepared INSERT can be used in it: database/sql refuses a statement of
// another handle, and does not show which handle a transaction belongs to.
func (p *Publisher) preparedIn(tx Tx) *sql.Tx {
	plain, ok := tx.(*sql.Tx)
	if !ok || p.one == nil || handle(plain) == 0 || handle(plain) != handle(p.one) {
		return nil
	}
	return plain
}

// handle returns the *sql.DB of a *sql.Tx or a *sql.Stmt, to compare it; 0 if it is not where it was.
func handle(of any) uintptr {
	db := reflect.ValueOf(of).Elem().FieldByName("db")
	if !db.IsValid() || db.Kind() != reflect.Pointer {
		return 0
	}
	return db.Pointer()
}

// explain adds advice to the error of a transaction that has ended.
func explain(err error) error {
	if err == nil || !errors.Is(err, sql.ErrTxDone) && !isPgxClosed(err) {
		return err
	}
	return fmt.Errorf("%w: publish before the commit or rollback; a transaction also rolls back when its context ends: %w", ErrTxOver, err)
}

// inTx runs f in a transaction of db, as [Publisher.RunInTx] promises, and announces nothing.
func inTx(ctx context.Context, db *sql.DB, options *sql.TxOptions, f func(ctx context.Context, tx *sql.Tx) error) error {
	if db == nil {
		return errNoDatabase
	}
	tx, err := db.BeginTx(ctx, options)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	if err := f(ctx, tx); err != nil {
		return err
	}
	if err := failpoint.Transaction.Do(tx.Commit); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}
