package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// Begin records an action; see store.Administrator.
func (s *Store) Begin(ctx context.Context, a store.Action) error {
	_, err := s.db.ExecContext(ctx, `INSERT INTO `+s.prefix+`_actions (id, who, action, filter) VALUES (?, ?, ?, ?)`,
		a.ID, a.Who, a.Name, string(a.Filter))
	if err != nil {
		return fmt.Errorf("record the action: %w", err)
	}
	return nil
}

// End records that an action is done; see store.Administrator.
func (s *Store) End(ctx context.Context, id string) error {
	result, err := s.db.ExecContext(ctx, `UPDATE `+s.prefix+`_actions SET ended_at = `+now+` WHERE id = ?`, id)
	if err == nil {
		err = oneAction(result)
	}
	if err != nil {
		return fmt.Errorf("record the end of action %s: %w", id, err)
	}
	return nil
}

// count adds to what an action has done.
func (s *Store) count(ctx context.Context, tx *sql.Tx, action string, n int) error {
	result, err := tx.ExecContext(ctx, `UPDATE `+s.prefix+`_actions SET count = count + ? WHERE id = ?`, n, action)
	if err != nil {
		return err
	}
	return oneAction(result)
}

func oneAction(result sql.Result) error {
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		err = store.ErrUnknownAction
	}
	return err
}

// Action is one of what people have done; see store.Administrator.
func (s *Store) Action(ctx context.Context, id string) (store.Action, error) {
	actions, err := s.actions(ctx, `WHERE id = ?`, id)
	if err == nil && len(actions) == 0 {
		err = store.ErrUnknownAction
	}
	if err != nil {
		return store.Action{}, fmt.Errorf("look for action %s: %w", id, err)
	}
	return actions[0], nil
}

// Actions lists what people have done; see store.Administrator.
func (s *Store) Actions(ctx context.Context, limit int) ([]store.Action, error) {
	actions, err := s.actions(ctx, `ORDER BY at DESC, id DESC LIMIT ?`, limit)
	if err != nil {
		return nil, fmt.Errorf("list the actions: %w", err)
	}
	return actions, nil
}

func (s *Store) actions(ctx context.Context, which string, args ...any) (actions []store.Action, err error) {
	rows, err := s.db.QueryContext(ctx,
		`SELECT id, at, who, action, filter, count, through, ended_at FROM `+s.prefix+`_actions `+which, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var a store.Action
		var at, filter string
		var ended sql.NullString
		if err := rows.Scan(&a.ID, &at, &a.Who, &a.Name, &filter, &a.Count, &a.Through, &ended); err != nil {
			return nil, err
		}
		a.Filter = []byte(filter)
		if a.At, err = parseTime(at); err != nil {
			return nil, err
		}
		if a.EndedAt, err = parseNullTime(ended); err != nil {
			return nil, err
		}
		actions = append(actions, a)
	}
	return actions, rows.Err()
}
