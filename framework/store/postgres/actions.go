package postgres

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// Begin records an action; see store.Administrator.
func (s *Store) Begin(ctx context.Context, a store.Action) error {
	_, err := s.db.ExecContext(ctx, `INSERT INTO `+s.sql.prefix+`_actions (id, who, action, filter) VALUES ($1, $2, $3, $4)`,
		a.ID, a.Who, a.Name, string(a.Filter))
	if err != nil {
		return fmt.Errorf("record the action: %w", advise(err))
	}
	return nil
}

// End records that an action is done; see store.Administrator.
func (s *Store) End(ctx context.Context, id string) error {
	result, err := s.db.ExecContext(ctx, `UPDATE `+s.sql.prefix+`_actions SET ended_at = clock_timestamp() WHERE id = $1`, id)
	if err == nil {
		err = oneAction(result)
	}
	if err != nil {
		return fmt.Errorf("record the end of action %s: %w", id, advise(err))
	}
	return nil
}

// count adds to what an action has done.
func (s *Store) count(ctx context.Context, tx *sql.Tx, action string, n int) error {
	result, err := tx.ExecContext(ctx, `UPDATE `+s.sql.prefix+`_actions SET count = count + $2 WHERE id = $1`, action, n)
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
	actions, err := s.actions(ctx, `WHERE id = $1`, id)
	if err == nil && len(actions) == 0 {
		err = store.ErrUnknownAction
	}
	if err != nil {
		return store.Action{}, fmt.Errorf("look for action %s: %w", id, advise(err))
	}
	return actions[0], nil
}

// Actions lists what people have done; see store.Administrator.
func (s *Store) Actions(ctx context.Context, limit int) ([]store.Action, error) {
	actions, err := s.actions(ctx, `ORDER BY at DESC, id DESC LIMIT $1`, limit)
	if err != nil {
		return nil, fmt.Errorf("list the actions: %w", advise(err))
	}
	return actions, nil
}

func (s *Store) actions(ctx context.Context, which string, args ...any) (actions []store.Action, err error) {
	rows, err := s.db.QueryContext(ctx,
		`SELECT id, at, who, action, filter::text, count, through, ended_at FROM `+s.sql.prefix+`_actions `+which, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var a store.Action
		var filter string
		var ended sql.NullTime
		if err := rows.Scan(&a.ID, &a.At, &a.Who, &a.Name, &filter, &a.Count, &a.Through, &ended); err != nil {
			return nil, err
		}
		a.At, a.Filter = a.At.UTC(), []byte(filter)
		if ended.Valid {
			a.EndedAt = ended.Time.UTC()
		}
		actions = append(actions, a)
	}
	return actions, rows.Err()
}
