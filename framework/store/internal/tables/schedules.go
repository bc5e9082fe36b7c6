package tables

import (
	"context"
	"database/sql"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Schedules lists all; see store.Schedules.
func (t *Tables) Schedules(ctx context.Context) (all []store.Schedule, err error) {
	defer t.tried(&err, "list the schedules")
	err = t.run.Each(ctx, t.db, func(rows *sql.Rows) error {
		var s store.Schedule
		last, next, requested, read := t.run.time(), t.run.time(), t.run.time(), t.run.time()
		if err := rows.Scan(&s.Name, &s.ID, &s.Spec, &s.Missed, &last, &next, &requested, &s.Paused, &s.Revision, &read); err != nil {
			return err
		}
		s.LastTick, s.NextTick, s.RequestedAt, s.ReadAt = last.Time, next.Time, requested.Time, read.Time
		all = append(all, s)
		return nil
	}, `SELECT name, id, spec, missed, last_tick, next_tick, requested_at, paused, revision, {now} FROM {schedules} ORDER BY name {whole schedules}`)
	return all, err
}

// AddSchedule makes a row; see store.Schedules.
func (t *Tables) AddSchedule(ctx context.Context, name string) error {
	_, err := t.run.InsertNew(ctx, t.db, []string{"name"}, `INSERT INTO {schedules} (name, id) VALUES (?, ?)`, name, notification.NewID())
	if err != nil && !t.dialect.Collides(err) { // with one that adds the same
		return t.failed(err, "add schedule %s", name)
	}
	return nil
}

// MoveSchedule writes a row if it is unchanged since it was read; see store.Schedules.
func (t *Tables) MoveSchedule(ctx context.Context, tx store.Execer, s store.Schedule) (bool, error) {
	query, args := t.run.Render(t.dialect.Brief(SQL(`UPDATE {schedules} SET spec = ?, missed = ?, last_tick = ?, next_tick = ?, requested_at = ?,
		revision = revision + 1, updated_at = {now} WHERE name = ? AND id = ? AND revision = ?`,
		s.Spec, s.Missed, t.dialect.Time(s.LastTick), t.dialect.Time(s.NextTick), t.dialect.Time(s.RequestedAt), s.Name, s.ID, s.Revision)))
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return false, t.refused(ctx, tx, err, "schedules", "move schedule "+s.Name)
	}
	moved, err := result.RowsAffected()
	return moved == 1, err
}

// PauseSchedule pauses and resumes; see store.Schedules.
func (t *Tables) PauseSchedule(ctx context.Context, action, name string, paused bool) (bool, error) {
	return t.changeSchedule(ctx, action, name, SQL(`UPDATE {schedules} SET paused = ?, revision = revision + 1, updated_at = {now}
		WHERE name = ? AND paused <> ?`, paused, name, paused))
}

// RequestTick asks for a tick; see store.Schedules.
func (t *Tables) RequestTick(ctx context.Context, action, name string) (bool, error) {
	return t.changeSchedule(ctx, action, name, SQL(`UPDATE {schedules} SET requested_at = {now}, revision = revision + 1, updated_at = {now}
		WHERE name = ? AND requested_at IS NULL`, name))
}

// ForgetSchedule deletes a row; see store.Schedules.
func (t *Tables) ForgetSchedule(ctx context.Context, action, name string) error {
	_, err := t.changeSchedule(ctx, action, name, SQL(`DELETE FROM {schedules} WHERE name = ?`, name))
	return err
}

// changeSchedule does what a person asks for, as part of an action.
func (t *Tables) changeSchedule(ctx context.Context, action, name string, change Expr) (changed bool, err error) {
	defer t.tried(&err, "schedule %s", name)
	err = t.inTx(ctx, func(tx *sql.Tx) error {
		n, err := t.run.Exec(ctx, tx, `?`, change)
		if err != nil {
			return err
		}
		if changed = n > 0; changed {
			return t.count(ctx, tx, action, 1)
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
