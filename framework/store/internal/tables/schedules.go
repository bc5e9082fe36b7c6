package tables

import (
	"context"
	"database/sql"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Schedules lists all; see store.Schedules.
func (t *Tables) Schedules(ctx context.Context) (all []store.Schedule, err error) {
	defer t.run.Tried(&err, "list the schedules")
	return List(ctx, t.run, t.run.DB, func(rows *sql.Rows, s *store.Schedule) error {
		return rows.Scan(&s.Name, &s.ID, &s.Spec, &s.Missed, t.run.Into(&s.LastTick), t.run.Into(&s.NextTick), t.run.Into(&s.RequestedAt), &s.Paused, &s.Revision, t.run.Into(&s.ReadAt))
	}, `SELECT name, id, spec, missed, last_tick, next_tick, requested_at, paused, revision, {now} FROM {schedules} ORDER BY name {whole schedules}`)
}

// AddSchedule makes a row; see store.Schedules.
func (t *Tables) AddSchedule(ctx context.Context, name string) error {
	err := failpoint.Schedule.Do(func() error {
		_, err := t.run.InsertNew(ctx, t.run.DB, []string{"name"}, `INSERT INTO {schedules} (name, id) VALUES (?, ?)`, name, notification.NewID())
		return err
	})
	if err != nil && !t.run.Dialect.Collides(err) { // with one that adds the same
		return t.run.Failed(err, "add schedule %s", name)
	}
	return nil
}

// MoveSchedule writes a row if it is unchanged since it was read; see store.Schedules.
func (t *Tables) MoveSchedule(ctx context.Context, tx store.Execer, s store.Schedule) (bool, error) {
	query, args := t.run.Render(t.run.Dialect.Brief(SQL(`UPDATE {schedules} SET spec = ?, missed = ?, last_tick = ?, next_tick = ?, requested_at = ?,
		revision = revision + 1, updated_at = {now} WHERE name = ? AND id = ? AND revision = ?`,
		s.Spec, s.Missed, t.run.Dialect.BindTime(s.LastTick), t.run.Dialect.BindTime(s.NextTick), t.run.Dialect.BindTime(s.RequestedAt), s.Name, s.ID, s.Revision)))
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return false, t.run.refused(ctx, tx, err, "schedules", "move schedule "+s.Name)
	}
	moved, err := result.RowsAffected()
	return moved == 1, err
}
