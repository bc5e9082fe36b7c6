package tables

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// Diagnose explains why a row was not appended to the log; see store.Diagnoser.
func (t *Tables) Diagnose(ctx context.Context, tx store.Execer, err error) error {
	return t.run.diagnose(ctx, tx, "log", err)
}

// refused wraps the error of a statement about a table in the caller's transaction.
func (r *Runner) refused(ctx context.Context, tx store.Execer, err error, table, what string) error {
	if r.Dialect.Collides(err) {
		return fmt.Errorf("%s: %w: %w", what, store.ErrCollision, err)
	}
	return r.Failed(r.diagnose(ctx, tx, table, err), "%s", what)
}

// unread is refused for the result of a method that reads a table, if that is an error: it is deferred.
func (r *Runner) unread(ctx context.Context, tx store.Execer, err *error, table, what string) {
	if *err != nil {
		*err = r.refused(ctx, tx, *err, table, what)
	}
}

func (r *Runner) diagnose(ctx context.Context, tx store.Execer, table string, err error) error {
	name := r.named(table)
	if !r.Dialect.Missing(ctx, tx, name, err) {
		return err
	}
	return fmt.Errorf("%w: it has no table %s: use a transaction of the database that the outbox was opened on, or migrate this one by waybill migrate: %w",
		store.ErrOtherDatabase, name, err)
}
