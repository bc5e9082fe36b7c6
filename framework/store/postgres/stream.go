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
	values, err := named(args)
	if err != nil {
		return err
	}
	for stale := 0; ; stale++ {
		begun, err := streamOnce(ctx, db, query, values, row)
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

func streamOnce(ctx context.Context, db *sql.DB, query string, args []driver.NamedValue, row func([]driver.Value) (bool, error)) (begun bool, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = cmp.Or(err, conn.Close()) }()
	return format.Query(ctx, conn, query, args, row)
}
