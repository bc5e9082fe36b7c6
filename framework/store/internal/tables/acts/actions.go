// Package acts has what people change in the tables of an outbox, the same in every database.
package acts

import (
	"context"
	"database/sql"
	"errors"
	"strconv"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store/internal/tables"

	"github.com/waybill-go/waybill/framework/store"
)

// Acts are what people change. They are safe for concurrent use.
type Acts struct {
	run    *tables.Runner
	raised revisions
}

// New returns the acts on the tables that a Runner names.
func New(r *tables.Runner) *Acts { return &Acts{run: r} }

// Begin records an action; see store.Operator.
func (t *Acts) Begin(ctx context.Context, a store.Action) (err error) {
	defer t.run.Tried(&err, "record the action")
	var isNew bool
	err = failpoint.BeginAction.Do(func() (err error) {
		isNew, err = t.run.InsertNew(ctx, t.run.DB, []string{"id"}, `INSERT INTO {actions} (id, who, address, reason, action, filter, request, planned, through) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			a.ID, a.Who, a.Address, a.Reason, a.Name, string(a.Filter), a.Request, a.Planned, a.Through)
		return err
	})
	if err == nil && !isNew {
		err = store.ErrActionBegun
	}
	return err
}

// End records that an action is done; see store.Operator.
func (t *Acts) End(ctx context.Context, id string) error {
	end := func(q tables.Querier) error {
		written, err := t.run.Exec(ctx, q, `UPDATE {actions} SET ended_at = {now}, updated_at = {now} WHERE id = ?`, id)
		if err == nil && written == 0 {
			err = store.ErrUnknownAction
		}
		return err
	}
	var err error
	if sinks := t.raised.owed(id); len(sinks) > 0 {
		err = t.run.InTxOf(ctx, failpoint.EndAction, sinks, func(tx *sql.Tx) error {
			if err := t.raiseRevisions(ctx, tx, sinks); err != nil {
				return err
			}
			return end(tx)
		})
	} else {
		err = failpoint.EndAction.Do(func() error { return end(t.run.DB) })
	}
	if err != nil {
		return t.run.Failed(err, "record the end of action %s", id)
	}
	t.raised.forget(id)
	return nil
}

// CancelAction ends an action; see store.Operator.
func (t *Acts) CancelAction(ctx context.Context, id, who string) (err error) {
	defer t.run.Tried(&err, "cancel action %s", id)
	err = t.run.InTx(ctx, failpoint.CancelAction, func(tx *sql.Tx) error { // waits for a running batch, under any default isolation level
		written, err := t.run.Exec(ctx, tx, `UPDATE {actions} SET cancelled_at = {now}, cancelled_by = ? WHERE id = ? AND cancelled_at IS NULL AND ended_at IS NULL`, who, id)
		if err != nil || written > 0 {
			return err
		}
		err = t.run.Stopped(ctx, tx, id)
		if errors.Is(err, store.ErrActionCancelled) || errors.Is(err, store.ErrActionMoved) {
			return store.ErrActionEnded
		}
		return err
	})
	return err
}

// Action returns an action; see store.Inspector.
func (t *Acts) Action(ctx context.Context, id string) (store.Action, error) {
	actions, err := t.actions(ctx, `WHERE id = ?`, id)
	if err == nil && len(actions) == 0 {
		err = store.ErrUnknownAction
	}
	if err != nil {
		return store.Action{}, t.run.Failed(err, "look for action %s", id)
	}
	return actions[0], nil
}

// Actions returns the latest actions; see store.Inspector.
func (t *Acts) Actions(ctx context.Context, limit int, names ...string) ([]store.Action, error) {
	which := tables.SQL(``)
	if len(names) > 0 {
		which = tables.SQL(`WHERE ?`, tables.AnyOf(`action`, names))
	}
	actions, err := t.actions(ctx, `? ORDER BY at DESC, id DESC {limit} ?`, which, limit)
	if err != nil {
		return nil, t.run.Failed(err, "list the actions")
	}
	return actions, nil
}

// silence is store.ActionSilence in microseconds.
var silence = strconv.FormatInt(store.ActionSilence.Microseconds(), 10)

func (t *Acts) actions(ctx context.Context, which string, args ...any) ([]store.Action, error) {
	return tables.List(ctx, t.run, t.run.DB, func(rows *sql.Rows, a *store.Action) error {
		return rows.Scan(&a.ID, t.run.Into(&a.At), &a.Who, &a.Address, &a.Reason, &a.Name, (*[]byte)(&a.Filter), &a.Request, &a.Planned, &a.Count, &a.Through,
			&a.State, t.run.Into(&a.UpdatedAt), t.run.Into(&a.CancelledAt), &a.CancelledBy, t.run.Into(&a.EndedAt))
	}, `SELECT id, at, who, address, reason, action, filter, request, planned, count, through,
		CASE WHEN cancelled_at IS NOT NULL THEN 'cancelled' WHEN ended_at IS NOT NULL THEN 'done' WHEN `+t.run.Dialect.Elapsed(`updated_at`)+` > `+silence+` THEN 'interrupted' ELSE 'running' END,
		updated_at, cancelled_at, cancelled_by, ended_at FROM {actions} `+which+` {whole actions}`, args...)
}
