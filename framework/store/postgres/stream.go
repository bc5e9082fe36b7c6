package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// stream is driverrows.Format.Query on a connection of the pool.
func stream(ctx context.Context, db *sql.DB, query string, args []any, row func(values []driver.Value) (more bool, err error)) error {
	return onConnection(ctx, db, args, func(conn *sql.Conn, values []driver.NamedValue) (begun bool, err error) {
		return format.Query(ctx, conn, query, values, row)
	})
}

// streamPrepared is stream for a statement that is worth preparing.
func streamPrepared(ctx context.Context, db *sql.DB, query string, args []any, row func(values []driver.Value) (more bool, err error)) error {
	return onConnection(ctx, db, args, func(conn *sql.Conn, values []driver.NamedValue) (begun bool, err error) {
		var s *session // nil: another driver's
		text := ""     // "": the query as it is
		err = conn.Raw(func(c any) (err error) {
			if s, _ = c.(*session); s != nil {
				text, err = s.prepared(ctx, query, values)
			}
			return err
		})
		if err == nil && text != "" {
			begun, err = format.Query(ctx, conn, text, nil, row)
		}
		if !begun && notPrepared(err) {
			s.connector.unprepared.Store(true)
			text, err = "", nil
		}
		if err != nil || text != "" {
			return begun, err
		}
		return format.Query(ctx, conn, query, values, row)
	})
}

// onConnection calls f with a connection of the pool and the arguments of a query, and again while the connection turns
// out to be lost.
func onConnection(ctx context.Context, db *sql.DB, args []any, f func(conn *sql.Conn, values []driver.NamedValue) (begun bool, err error)) error {
	values, err := named(args)
	if err != nil {
		return err
	}
	once := func() (begun bool, err error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return false, err
		}
		defer func() { err = cmp.Or(err, conn.Close()) }()
		return f(conn, values)
	}
	for stale := 0; ; stale++ {
		begun, err := once()
		if begun || !errors.Is(err, driver.ErrBadConn) || stale == staleConnections {
			return err
		}
	}
}

// named converts arguments for a driver.
func named(args []any) ([]driver.NamedValue, error) {
	values := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		value, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return nil, fmt.Errorf("argument %d: %w", i+1, err)
		}
		values[i] = driver.NamedValue{Ordinal: i + 1, Value: value}
	}
	return values, nil
}

// staleConnections is how many connections of the pool may turn out to be lost, as in database/sql.
const staleConnections = 2
