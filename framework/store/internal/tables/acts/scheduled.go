package acts

import (
	"context"
	"database/sql"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// PauseSchedule pauses and resumes; see store.Schedules.
func (t *Acts) PauseSchedule(ctx context.Context, action, name string, paused bool) (bool, error) {
	return t.changeSchedule(ctx, action, name, tables.SQL(`UPDATE {schedules} SET paused = ?, revision = revision + 1, updated_at = {now}
		WHERE name = ? AND paused <> ?`, paused, name, paused))
}

// RequestTick asks for a tick; see store.Schedules.
func (t *Acts) RequestTick(ctx context.Context, action, name string) (bool, error) {
	return t.changeSchedule(ctx, action, name, tables.SQL(`UPDATE {schedules} SET requested_at = {now}, revision = revision + 1, updated_at = {now}
		WHERE name = ? AND requested_at IS NULL`, name))
}

// ForgetSchedule deletes a row; see store.Schedules.
func (t *Acts) ForgetSchedule(ctx context.Context, action, name string) error {
	_, err := t.changeSchedule(ctx, action, name, tables.SQL(`DELETE FROM {schedules} WHERE name = ?`, name))
	return err
}

// changeSchedule does what a person asks for, as part of an action.
func (t *Acts) changeSchedule(ctx context.Context, action, name string, change tables.Expr) (changed bool, err error) {
	defer t.run.Tried(&err, "schedule %s", name)
	err = t.run.InTx(ctx, failpoint.Schedule, func(tx *sql.Tx) error {
		n, err := t.run.Exec(ctx, tx, `?`, change)
		if err != nil {
			return err
		}
		if changed = n > 0; changed {
			return t.run.Count(ctx, tx, action, 1)
		}
		var exists bool
		err = t.run.Row(ctx, tx, `SELECT EXISTS (SELECT 1 FROM {schedules} WHERE name = ?) {whole schedules}`, name).Scan(&exists)
		if err == nil && !exists {
			err = store.ErrUnknownSchedule
		}
		return err
	})
	return changed, err
}
