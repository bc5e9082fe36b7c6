package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
)

// A server's life is its identity and the time of its start. Knowledge about offsets without a
// committed row ends with it: after a crash the server may hand out these offsets again. A session
// cannot outlive the server, so the session variable @waybill_life is the life in which a statement
// runs, even if a pooler gives the session to another client.
//
// The time of the start has a resolution of a second: if a server crashes and restarts within the second
// of its start, the restart is not noticed.

// life returns the life of a connection's server.
func (s *Store) life(ctx context.Context, c *sql.Conn) (life string, err error) {
	err = c.Raw(func(conn any) error {
		if ours, ok := conn.(*session.Session); ok {
			life = ours.Life
		}
		return nil
	})
	if err != nil || life != "" {
		return life, err
	}
	return s.noteLife(ctx, c)
}

// noteLife sets the life in sessions of a handle that OpenDB did not open.
func (s *Store) noteLife(ctx context.Context, q tables.Querier) (string, error) {
	var life sql.NullString
	err := q.QueryRowContext(ctx, `SELECT @waybill_life`).Scan(&life)
	if err != nil || life.String != "" {
		return life.String, err
	}
	if _, err := q.ExecContext(ctx, s.family.NoteLife); err != nil {
		return "", err
	}
	if err := q.QueryRowContext(ctx, `SELECT @waybill_life`).Scan(&life); err != nil {
		return "", err
	}
	if life.String == "" {
		return "", session.ErrNoLife
	}
	return life.String, nil
}

// staleConnections is how many stale connections of the pool are tried, as in database/sql.
const staleConnections = 2

// on runs a function on a connection in a life of the server, and returns that life; "" accepts any
// life. It repeats the function if the connection turns out to be stale.
func (s *Store) on(ctx context.Context, db *sql.DB, life string, do func(c *sql.Conn) error) (got string, err error) {
	for stale := 0; ; stale++ {
		got, err = s.onOne(ctx, db, life, do)
		if !errors.Is(err, driver.ErrBadConn) || stale == staleConnections {
			return got, err
		}
	}
}

func (s *Store) onOne(ctx context.Context, db *sql.DB, life string, do func(c *sql.Conn) error) (got string, err error) {
	c, err := db.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }() // returns it to the pool
	got, err = s.life(ctx, c)
	switch {
	case err != nil:
		return "", err
	case life != "" && got != life:
		return got, store.ErrServerChanged
	}
	return got, do(c)
}

// dirty is like on, in a transaction that also sees uncommitted rows.
func (s *Store) dirty(ctx context.Context, life string, do func(tx *sql.Tx) error) error {
	_, err := s.on(ctx, s.db, life, func(c *sql.Conn) error {
		tx, err := c.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadUncommitted})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		return do(tx)
	})
	return err
}

// offsets runs a query for one column of offsets.
func offsets(ctx context.Context, c *sql.Conn, query string) (list []int64, err error) {
	_, err = format.Query(ctx, c, query, nil, func(row []driver.Value) (bool, error) {
		v := format.Values(row)
		list = append(list, v.Integer())
		return true, v.Err()
	})
	return list, err
}
