package tables

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// Diagnose explains why a row was not appended to the log; see store.Diagnoser.
func (t *Tables) Diagnose(ctx context.Context, tx store.Execer, err error) error {
	return t.diagnose(ctx, tx, "log", err)
}

// refused wraps the error of a statement about a table in the caller's transaction.
func (t *Tables) refused(ctx context.Context, tx store.Execer, err error, table, what string) error {
	if t.dialect.Collides(err) {
		return fmt.Errorf("%s: %w: %w", what, store.ErrCollision, err)
	}
	return t.failed(t.diagnose(ctx, tx, table, err), "%s", what)
}

func (t *Tables) diagnose(ctx context.Context, tx store.Execer, table string, err error) error {
	name := t.run.named(table)
	if !t.dialect.Missing(ctx, tx, name, err) {
		return err
	}
	return fmt.Errorf("%w: it has no table %s: use a transaction of the database that the outbox was opened on, or migrate this one: %w",
		store.ErrOtherDatabase, name, err)
}
