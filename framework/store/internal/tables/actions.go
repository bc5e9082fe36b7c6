package tables

import (
	"context"
	"database/sql"

	"github.com/waybill-go/waybill/framework/store"
)

// Begin records an action; see store.Operator.
func (t *Tables) Begin(ctx context.Context, a store.Action) error {
	_, err := t.run.Exec(ctx, t.db, `INSERT INTO {actions} (id, who, action, filter) VALUES (?, ?, ?, ?)`, a.ID, a.Who, a.Name, string(a.Filter))
	if err != nil {
		return t.failed(err, "record the action")
	}
	return nil
}

// End records that an action is done; see store.Operator.
func (t *Tables) End(ctx context.Context, id string) error {
	end := func(q Querier) error {
		return one(t.run.Exec(ctx, q, `UPDATE {actions} SET ended_at = {now} WHERE id = ?`, id))
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

// count adds to what an action has done.
func (t *Tables) count(ctx context.Context, tx *sql.Tx, action string, n int) error {
	return one(t.run.Exec(ctx, tx, `UPDATE {actions} SET count = count + ? WHERE id = ?`, n, action))
}

// one returns store.ErrUnknownAction where an update of an action met none.
func one(written int64, err error) error {
	if err == nil && written == 0 {
		err = store.ErrUnknownAction
	}
	return err
}

// Action is one of what people have done; see store.Inspector.
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

// Actions lists what people have done; see store.Inspector.
func (t *Tables) Actions(ctx context.Context, limit int) ([]store.Action, error) {
	actions, err := t.actions(ctx, `ORDER BY at DESC, id DESC LIMIT ?`, limit)
	if err != nil {
		return nil, t.failed(err, "list the actions")
	}
	return actions, nil
}

func (t *Tables) actions(ctx context.Context, which string, args ...any) (actions []store.Action, err error) {
	err = t.run.Each(ctx, t.db, func(rows *sql.Rows) error {
		var a store.Action
		at, ended := t.run.time(), t.run.time()
		if err := rows.Scan(&a.ID, &at, &a.Who, &a.Name, (*[]byte)(&a.Filter), &a.Count, &a.Through, &ended); err != nil {
			return err
		}
		a.At, a.EndedAt = at.Time, ended.Time
		actions = append(actions, a)
		return nil
	}, `SELECT id, at, who, action, filter, count, through, ended_at FROM {actions} `+which+` {whole actions}`, args...)
	return actions, err
}
