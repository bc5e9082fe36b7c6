package tables

import (
	"context"
	"database/sql"
	"strings"
	"sync/atomic"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store"
)

// Expr is a piece of SQL with its arguments, in a form that all dialects share:
//
//   - each ? is the next argument; an argument that is itself an Expr is inserted as text, with its
//     own arguments;
//   - double quotes quote identifiers;
//   - {log}, {cursors}, {forwarders}, {parked}, {receipts}, {inbox}, {cancelled}, {unique},
//     {schedules}, {actions}, {endpoints}, {attempts}, {collections} and {keys} are the tables; {whole log parked} ends a SELECT that must fail if
//     rows of these tables are hidden: each SELECT that would take hidden rows for missing; {now}
//     is the database's clock; {limit} ? is LIMIT with an argument; {envelope} are the columns of an
//     envelope, {selected} the same as the dialect reads them, {logged} the same of a row of the log,
//     and {slot} such a row's slot.
type Expr struct {
	Text string
	Args []any
}

// SQL returns an Expr.
func SQL(text string, args ...any) Expr { return Expr{text, args} }

// And adds a condition.
func (e *Expr) And(text string, args ...any) {
	e.Text += " AND " + text
	e.Args = append(e.Args, args...)
}

// Join puts a separator between pieces.
func Join(separator string, pieces []Expr) Expr {
	args := make([]any, len(pieces))
	for i, p := range pieces {
		args[i] = p
	}
	return Expr{strings.TrimSuffix(strings.Repeat("?"+separator, len(pieces)), separator), args}
}

// list returns (?, ?, …) with the values.
func list(values ...any) Expr {
	return Expr{"(?" + strings.Repeat(", ?", len(values)-1) + ")", values}
}

// Runner runs expressions on the tables of one outbox, in the SQL of a dialect. It has what all roles of a
// store share, such as its transactions and the cursors.
type Runner struct {
	DB       *sql.DB
	table    func(name string) string
	Dialect  Dialect
	Source   store.Source           // nil: the log is the database's own
	reserved atomic.Pointer[sql.DB] // see own
}

// NewRunner returns a Runner for the tables of an outbox. table returns the name of a table for
// statements; "" is the log. source is the log if it is not nil.
func NewRunner(db *sql.DB, table func(name string) string, d Dialect, source store.Source) *Runner {
	return &Runner{DB: db, table: table, Dialect: d, Source: source}
}

// envelope are the columns of an envelope in the parked table.
const envelope = `"offset", slot, id, type, version, "key", occurred_on, deliver_at, metadata, payload`

// logged are the same columns of a row of the log.
const logged = `"offset", {slot} AS slot, id, type, version, "key", occurred_on, deliver_at, metadata, payload`

// Render returns an expression in the SQL of the dialect.
func (r *Runner) Render(e Expr) (query string, args []any) {
	var b strings.Builder
	b.Grow(len(e.Text) + 64)
	r.render(&b, &args, e)
	return b.String(), args
}

func (r *Runner) render(b *strings.Builder, args *[]any, e Expr) {
	next := 0
	for text := e.Text; text != ""; {
		i := strings.IndexAny(text, `?{"`)
		if i < 0 {
			b.WriteString(text)
			break
		}
		b.WriteString(text[:i])
		switch text[i] {
		case '"':
			b.WriteString(r.Dialect.Quote())
		case '?':
			if inner, isExpr := e.Args[next].(Expr); isExpr {
				r.render(b, args, inner)
			} else {
				*args = append(*args, e.Args[next])
				b.WriteString(r.Dialect.Placeholder(len(*args)))
			}
			next++
		case '{':
			end := i + strings.IndexByte(text[i:], '}')
			r.word(b, args, text[i+1:end])
			i = end
		}
		text = text[i+1:]
	}
}

func (r *Runner) word(b *strings.Builder, args *[]any, word string) {
	switch word {
	case "now":
		r.render(b, args, Expr{Text: r.Dialect.Now()})
		return
	case "limit":
		b.WriteString(r.Dialect.Limit())
		return
	case "envelope":
		r.render(b, args, Expr{Text: envelope})
		return
	case "logged":
		r.render(b, args, Expr{Text: logged})
		return
	case "slot":
		r.render(b, args, Expr{Text: r.Dialect.Slot()})
		return
	case "selected":
		r.render(b, args, Expr{Text: r.Dialect.Selected()})
		return
	}
	if list, whole := strings.CutPrefix(word, "whole "); whole {
		names := strings.Fields(list)
		for i := range names {
			names[i] = r.named(names[i])
		}
		b.WriteString(r.Dialect.Whole(names))
		return
	}
	b.WriteString(r.named(word))
}

func (r *Runner) named(table string) string {
	if table == "log" {
		table = ""
	}
	return r.table(table)
}

// Querier is a database or a transaction.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Exec runs a statement and returns how many rows it wrote.
func (r *Runner) Exec(ctx context.Context, q Querier, text string, args ...any) (int64, error) {
	query, values := r.Render(SQL(text, args...))
	result, err := q.ExecContext(ctx, query, values...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// Write makes a durable step of one statement, with the connections of the forwarder.
func (r *Runner) Write(ctx context.Context, step failpoint.Step, text string, args ...any) (written int64, err error) {
	err = step.Do(func() error {
		written, err = r.Exec(ctx, r.Own(), text, args...)
		return err
	})
	return written, err
}

// InsertNew runs an INSERT of one row, and returns whether there was none with the same key.
func (r *Runner) InsertNew(ctx context.Context, q Querier, key []string, text string, args ...any) (isNew bool, err error) {
	written, err := r.Exec(ctx, q, text+r.Dialect.NewRow(key), args...)
	if err != nil && r.Dialect.Exists(err) {
		return false, nil
	}
	return written > 0, err
}

// Row runs a query for one row.
func (r *Runner) Row(ctx context.Context, q Querier, text string, args ...any) *sql.Row {
	query, values := r.Render(SQL(text, args...))
	return q.QueryRowContext(ctx, query, values...)
}

// Each runs a query and calls row for each of its rows.
func (r *Runner) Each(ctx context.Context, q Querier, row func(rows *sql.Rows) error, text string, args ...any) error {
	query, values := r.Render(SQL(text, args...))
	return EachRow(ctx, q, row, query, values...)
}

// RowsQuerier is the part of a database or a transaction that reads rows.
type RowsQuerier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// EachRow runs a query and calls row for each of its rows.
func EachRow(ctx context.Context, q RowsQuerier, row func(rows *sql.Rows) error, query string, args ...any) (err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer CloseRows(rows, &err)
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// List runs a query and returns what scan makes of each of its rows.
func List[T any](ctx context.Context, r *Runner, q Querier, scan func(rows *sql.Rows, item *T) error, text string, args ...any) ([]T, error) {
	query, values := r.Render(SQL(text, args...))
	return ListRows(ctx, q, scan, query, values...)
}

// Column runs a query for one column.
func Column[T any](ctx context.Context, r *Runner, q Querier, text string, args ...any) ([]T, error) {
	return List(ctx, r, q, func(rows *sql.Rows, item *T) error { return rows.Scan(item) }, text, args...)
}

// ListRows is List for a query of one dialect.
func ListRows[T any](ctx context.Context, q RowsQuerier, scan func(rows *sql.Rows, item *T) error, query string, args ...any) (list []T, err error) {
	err = EachRow(ctx, q, func(rows *sql.Rows) error {
		var item T
		err := scan(rows, &item)
		list = append(list, item)
		return err
	}, query, args...)
	return list, err
}

// Texts runs a query of one dialect for one column of texts.
func Texts(ctx context.Context, q RowsQuerier, query string, args ...any) ([]string, error) {
	return ListRows(ctx, q, func(rows *sql.Rows, text *string) error { return rows.Scan(text) }, query, args...)
}

// CloseRows ends a query, and keeps the first error.
func CloseRows(rows *sql.Rows, err *error) {
	if closeErr := rows.Close(); *err == nil {
		*err = closeErr
	}
}

// AnyOf is the condition that a column has one of the values.
func AnyOf[T ~string](column string, values []T) Expr {
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = string(v)
	}
	return SQL(column+` IN ?`, list(args...))
}

// Holds is the condition on the state that a parked delivery holds back its key. It repeats the
// condition of the index of keys, which some databases require word for word.
func Holds(alias string, halt bool) string {
	if halt {
		return alias + keyed
	}
	return alias + `state IN ('retrying', 'blocked', 'quiet') AND ` + alias + keyed
}

const keyed = `state IN ('retrying', 'blocked', 'dead', 'quiet')`
