package sqlite

import (
	"context"
	"database/sql/driver"
)

// maxPrepared is the number of prepared statements that a connection keeps. The SQL of a forwarder has some
// dozens of texts; those with lists of values, whose texts differ in length, take the places of others.
const maxPrepared = 128

// prepared are the prepared statements of a connection that are not in use, by their text. Preparing a
// statement takes SQLite about as long as running one that touches few rows. SQLite prepares it again by itself
// when the schema has changed.
type prepared map[string]statement

// statement is what the driver's statements implement.
type statement interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// take returns a statement for a text, which only the caller uses until it is put back.
func (p prepared) take(ctx context.Context, c driver.ConnPrepareContext, text string) (statement, error) {
	if s, ok := p[text]; ok {
		delete(p, text)
		return s, nil
	}
	s, err := c.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return s.(statement), nil
}

// put keeps a statement for the next use of its text, unless it failed or there is another one.
func (p prepared) put(text string, s statement, err error) error {
	if _, ok := p[text]; ok || err != nil {
		return s.Close()
	}
	if len(p) >= maxPrepared {
		for other, s := range p { // any of them
			delete(p, other)
			if err := s.Close(); err != nil {
				return err
			}
			break
		}
	}
	p[text] = s
	return nil
}

// ExecContext implements driver.ExecerContext.
func (s *session) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	statement, err := s.prepared.take(ctx, s.full, text)
	if err != nil {
		return nil, err
	}
	result, err := statement.ExecContext(ctx, args)
	if putErr := s.prepared.put(text, statement, err); err == nil {
		err = putErr
	}
	return result, err
}

// QueryContext implements driver.QueryerContext.
func (s *session) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	statement, err := s.prepared.take(ctx, s.full, text)
	if err != nil {
		return nil, err
	}
	rows, err := statement.QueryContext(ctx, args)
	if err != nil {
		_ = s.prepared.put(text, statement, err) // closes it; the error of the query says more
		return nil, err
	}
	return &result{fullRows: rows.(fullRows), end: func(err error) error { return s.prepared.put(text, statement, err) }}, nil
}

// Close implements driver.Conn.
func (s *session) Close() error {
	for text, statement := range s.prepared {
		delete(s.prepared, text)
		_ = statement.Close() // the error of closing the connection says more
	}
	return s.full.Close()
}

// fullRows is what the driver's rows implement.
type fullRows interface {
	driver.Rows
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeLength
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
	driver.RowsColumnTypeScanType
}

// result are the rows of a statement, which is put back when they are closed.
type result struct {
	fullRows
	end func(error) error
}

// Close implements driver.Rows.
func (r *result) Close() error {
	err := r.fullRows.Close()
	if endErr := r.end(err); err == nil {
		err = endErr
	}
	return err
}
