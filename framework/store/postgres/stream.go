package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
)

// stream runs a query and passes each row to a function as the driver returns it: nil, int64,
// string, []byte, time.Time. The values are valid until row returns. row returns false to stop. It
// bypasses the conversions of database/sql, which cost as much for a page as the driver itself.
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
	return streamOn(ctx, conn, query, args, row)
}

// streamOn is stream on one connection. begun reports that the server has got the query.
func streamOn(ctx context.Context, conn *sql.Conn, query string, args []driver.NamedValue, row func([]driver.Value) (bool, error)) (begun bool, err error) {
	err = conn.Raw(func(c any) error {
		queryer, ok := c.(driver.QueryerContext)
		if !ok {
			return fmt.Errorf("driver %T cannot be asked directly: use lib/pq or pgx", c)
		}
		rows, err := queryer.QueryContext(ctx, query, args)
		if err != nil {
			return err
		}
		begun = true
		return cmp.Or(each(rows, row), rows.Close())
	})
	return begun, err
}

// each passes on rows until there are no more, or no more are wanted.
func each(rows driver.Rows, row func([]driver.Value) (bool, error)) error {
	values := make([]driver.Value, len(rows.Columns()))
	for {
		if err := rows.Next(values); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if more, err := row(values); !more || err != nil {
			return err
		}
	}
}
