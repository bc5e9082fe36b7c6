package tables

import (
	"context"
	"database/sql"
	"errors"
	"strconv"

	"github.com/waybill-go/waybill/framework/store"
)

// Begin records an action; see store.Operator.
func (t *Tables) Begin(ctx context.Context, a store.Action) (err error) {
	defer t.tried(&err, "record the action")
	isNew, err := t.run.InsertNew(ctx, t.db, []string{"id"}, `INSERT INTO {actions} (id, who, address, reason, action, filter, request, planned) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		a.ID, a.Who, a.Address, a.Reason, a.Name, string(a.Filter), a.Request, a.Planned)
	if err == nil && !isNew {
		err = store.ErrActionBegun
	}
	return err
}

// End records that an action is done; see store.Operator.
func (t *Tables) End(ctx context.Context, id string) error {
	end := func(q Querier) error {
		written, err := t.run.Exec(ctx, q, `UPDATE {actions} SET ended_at = {now}, updated_at = {now} WHERE id = ?`, id)
		if err == nil && written == 0 {
			err = store.ErrUnknownAction
		}
		return err
	}
	var err error
	if sinks := t.raised.owed(id); len(sinks) > 0 {
		err = t.inTxOf(ctx, sinks, func(tx *sql.Tx) error {
			if err := t.raiseRevisions(ctx, tx, sinks); err != nil {
				return err
			}
			return end(tx)
		})
	} else {
		err = end(t.db)
	}
	if err != nil {
		return t.failed(err, "record the end of action %s", id)
	}
	t.raised.forget(id)
	return nil
}

// CancelAction ends an action; see store.Operator.
func (t *Tables) CancelAction(ctx context.Context, id, who string) (err error) {
	defer t.tried(&err, "cancel action %s", id)
	err = t.inTx(ctx, func(tx *sql.Tx) error { // waits for a running batch, under any default isolation level
		written, err := t.run.Exec(ctx, tx, `UPDATE {actions} SET cancelled_at = {now}, cancelled_by = ? WHERE id = ? AND cancelled_at IS NULL AND ended_at IS NULL`, who, id)
		if err != nil || written > 0 {
			return err
		}
		err = t.stopped(ctx, tx, id)
		if errors.Is(err, store.ErrActionCancelled) || errors.Is(err, store.ErrActionMoved) {
			return store.ErrActionEnded
		}
		return err
	})
	return err
}

// count adds to what an action has done, unless it was cancelled.
func (t *Tables) count(ctx context.Context, tx *sql.Tx, action string, n int) error {
	written, err := t.run.Exec(ctx, tx, `UPDATE {actions} SET count = count + ?, updated_at = {now} WHERE id = ? AND cancelled_at IS NULL`, n, action)
	if err == nil && written == 0 {
		err = t.stopped(ctx, tx, action)
	}
	return err
}

// stopped returns why an action cannot go on.
func (t *Tables) stopped(ctx context.Context, tx *sql.Tx, action string) error {
	var cancelled bool
	err := t.run.Row(ctx, tx, `SELECT cancelled_at IS NOT NULL FROM {actions} WHERE id = ? {whole actions}`, action).Scan(&cancelled)
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

// Action returns an action; see store.Inspector.
func (t *Tables) Action(ctx context.Context, id string) (store.Action, error) {
	actions, err := t.actions(ctx, `WHERE id = ?`, id)
	if err == nil && len(actions) == 0 {
		err = store.ErrUnknownAction
	}
	if err != nil {
		return store.Action{}, t.failed(err, "look for action %s", id)
	}
	return actions[0], nil
}

// Actions returns the latest actions; see store.Inspector.
func (t *Tables) Actions(ctx context.Context, limit int) ([]store.Action, error) {
	actions, err := t.actions(ctx, `ORDER BY at DESC, id DESC LIMIT ?`, limit)
	if err != nil {
		return nil, t.failed(err, "list the actions")
	}
	return actions, nil
}

// silence is store.ActionSilence in microseconds.
var silence = strconv.FormatInt(store.ActionSilence.Microseconds(), 10)

func (t *Tables) actions(ctx context.Context, which string, args ...any) (actions []store.Action, err error) {
	err = t.run.Each(ctx, t.db, func(rows *sql.Rows) error {
		var a store.Action
		at, updated, cancelled, ended := t.run.time(), t.run.time(), t.run.time(), t.run.time()
		if err := rows.Scan(&a.ID, &at, &a.Who, &a.Address, &a.Reason, &a.Name, (*[]byte)(&a.Filter), &a.Request, &a.Planned, &a.Count, &a.Through,
			&a.State, &updated, &cancelled, &a.CancelledBy, &ended); err != nil {
			return err
		}
		a.At, a.UpdatedAt, a.CancelledAt, a.EndedAt = at.Time, updated.Time, cancelled.Time, ended.Time
		actions = append(actions, a)
		return nil
	}, `SELECT id, at, who, address, reason, action, filter, request, planned, count, through,
		CASE WHEN cancelled_at IS NOT NULL THEN 'cancelled' WHEN ended_at IS NOT NULL THEN 'done' WHEN `+t.dialect.Elapsed(`updated_at`)+` > `+silence+` THEN 'interrupted' ELSE 'running' END,
		updated_at, cancelled_at, cancelled_by, ended_at FROM {actions} `+which+` {whole actions}`, args...)
	return actions, err
}
