package tables

import (
	"context"
	"database/sql"
	"errors"

	"github.com/waybill-go/waybill/framework/store"
)

// Count adds to what an action has done, unless it was cancelled.
func (r *Runner) Count(ctx context.Context, tx *sql.Tx, action string, n int) error {
	written, err := r.Exec(ctx, tx, `UPDATE {actions} SET count = count + ?, updated_at = {now} WHERE id = ? AND cancelled_at IS NULL`, n, action)
	if err == nil && written == 0 {
		err = r.Stopped(ctx, tx, action)
	}
	return err
}

// Stopped returns why an action cannot go on.
func (r *Runner) Stopped(ctx context.Context, tx *sql.Tx, action string) error {
	var cancelled bool
	err := r.Row(ctx, tx, `SELECT cancelled_at IS NOT NULL FROM {actions} WHERE id = ? {whole actions}`, action).Scan(&cancelled)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return store.ErrUnknownAction
	case err == nil && cancelled:
		return store.ErrActionCancelled
	case err == nil:
		return store.ErrActionMoved
	}
	return err
}
