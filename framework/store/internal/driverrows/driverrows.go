// Package driverrows reads rows as a driver returns them. It bypasses the conversions of database/sql,
// which cost as much for a page of the log as the driver itself.
package driverrows

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

	"github.com/waybill-go/waybill/framework/notification"
)

// Format is what differs between databases.
type Format struct {
	// Drivers names the drivers whose values can be read, for errors.
	Drivers string
	// Time decodes a time that the driver returns as bytes, Text one that it returns as text.
	Time func(value []byte) (time.Time, error)
	Text func(value string) (time.Time, error)
}

// Query runs a query on one connection and passes each row to a function: nil, int64, string, []byte,
// time.Time. The values are valid until row returns. row returns false to stop. begun reports that the
// server has received the query.
func (f *Format) Query(ctx context.Context, conn *sql.Conn, query string, args []driver.NamedValue, row func(values []driver.Value) (more bool, err error)) (begun bool, err error) {
	err = conn.Raw(func(c any) error {
		queryer, ok := c.(driver.QueryerContext)
		if !ok {
			return fmt.Errorf("driver %T cannot be asked directly: use %s", c, f.Drivers)
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

// Values reads a row's columns one after the other. It keeps the first error.
type Values struct {
	format *Format
	left   []driver.Value
	err    error
}

// Values returns the columns of a row.
func (f *Format) Values(row []driver.Value) *Values { return &Values{format: f, left: row} }

// Err returns the first error: a column was not of the type that it was read as.
func (v *Values) Err() error { return v.err }

func (v *Values) next() driver.Value {
	next := v.left[0]
	v.left = v.left[1:]
	return next
}

func (v *Values) failed(err error) {
	if v.err == nil {
		v.err = err
	}
}

func (v *Values) wrong(value driver.Value) {
	v.failed(fmt.Errorf("the driver gives %T for a column: use %s", value, v.format.Drivers))
}

// Integer reads a column with a number, which a driver may return as text.
func (v *Values) Integer() int64 {
	switch value := v.next().(type) {
	case int64:
		return value
	case []byte:
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			v.failed(err)
		}
		return n
	default:
		v.wrong(value)
		return 0
	}
}

// Text reads a column with text.
func (v *Values) Text() string {
	switch value := v.next().(type) {
	case string:
		return value
	case []byte:
		return string(value)
	default:
		v.wrong(value)
		return ""
	}
}

// Bytes returns a slice that is valid until the next row.
func (v *Values) Bytes() []byte {
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

// Time returns zero for NULL, and otherwise a time that notification.ClampTime returns: a log may
// have rows from before it refused other times.
func (v *Values) Time() time.Time {
	switch value := v.next().(type) {
	case nil:
		return time.Time{}
	case time.Time:
		return notification.ClampTime(value)
	case []byte:
		t, err := v.format.Time(value)
		if err != nil {
			v.failed(err)
		}
		return notification.ClampTime(t)
	case string:
		t, err := v.format.Text(value)
		if err != nil {
			v.failed(err)
		}
		return notification.ClampTime(t)
	default:
		v.wrong(value)
		return time.Time{}
	}
}
