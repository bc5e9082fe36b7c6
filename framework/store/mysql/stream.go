package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// stream runs a query without arguments on a connection and calls row with the driver's values of each
// row: nil, int64, []byte, time.Time. They are valid until row returns. row returns false to end the
// query. stream avoids the conversions of database/sql, which cost as much as the driver itself.
func stream(ctx context.Context, c *sql.Conn, query string, row func(values []driver.Value) (more bool, err error)) error {
	return c.Raw(func(conn any) error {
		queryer, ok := conn.(driver.QueryerContext)
		if !ok {
			return fmt.Errorf("driver %T cannot be asked directly: use github.com/go-sql-driver/mysql", conn)
		}
		rows, err := queryer.QueryContext(ctx, query, nil)
		if err != nil {
			return err
		}
		return cmp.Or(each(rows, row), rows.Close())
	})
}

// each calls row until there are no more rows or row returns false.
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

// values reads the columns of a row one after the other. It keeps the first error.
type values struct {
	left []driver.Value
	err  error
}

func (v *values) next() driver.Value {
	next := v.left[0]
	v.left = v.left[1:]
	return next
}

func (v *values) wrong(value driver.Value) {
	if v.err == nil {
		v.err = fmt.Errorf("the driver returns %T for a column: use github.com/go-sql-driver/mysql", value)
	}
}

func (v *values) integer() int64 {
	switch value := v.next().(type) {
	case int64:
		return value
	case []byte:
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil && v.err == nil {
			v.err = err
		}
		return n
	default:
		v.wrong(value)
		return 0
	}
}

// bytes returns memory of the driver, which is valid until the next row.
func (v *values) bytes() []byte {
	switch value := v.next().(type) {
	case []byte:
		return value
	case string:
		return []byte(value)
	default:
		v.wrong(value)
		return nil
	}
}

func (v *values) text() string { return string(v.bytes()) }

// time returns the zero time for NULL.
func (v *values) time() time.Time {
	value := v.next()
	switch value := value.(type) {
	case nil:
		return time.Time{}
	case time.Time:
		return value.UTC()
	case []byte:
		t, err := parseTime(string(value))
		if err != nil && v.err == nil {
			v.err = err
		}
		return t
	}
	v.wrong(value)
	return time.Time{}
}
