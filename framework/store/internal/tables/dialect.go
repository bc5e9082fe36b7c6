package tables

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Dialect is what databases say differently, and what only a dialect knows of its
// log. Standard has what most of them share.
type Dialect interface {
	// Placeholder stands for the nth argument of a statement, from 1.
	Placeholder(n int) string
	// Quote is the character around an identifier.
	Quote() string
	// Whole is the end of a SELECT, behind LIMIT, that fails it where rows of one of the
	// tables, as statements name them, are hidden from this role. It may be empty.
	Whole(tables []string) string
	// Now is the database's clock, which goes on within a transaction.
	Now() string
	// NowPlus is the clock and d, which may be negative.
	NowPlus(d time.Duration) Expr
	// Elapsed is the number of microseconds since a time, as an integer.
	Elapsed(since string) string
	// LogTime is an expression of a time in the log in a form that compares.
	LogTime(expression string) string
	// DueTime is an expression of a time in the log as the time at which a delivery is due.
	DueTime(expression string) string
	// Position is the function that returns where the second of two texts stands in
	// the first, from 1; 0: nowhere.
	Position() string

	// MetadataIs is the condition that a name has a value in the column metadata of a row
	// called p.
	MetadataIs(name, value string) Expr

	// Time is a time as an argument; NULL if it is zero.
	Time(t time.Time) any
	// Payload is a payload as an argument, never NULL.
	Payload(payload []byte) any
	// ParseTime reads a time that the driver hands over as a text.
	ParseTime(text string) (time.Time, error)

	// Selected are the columns of an envelope as EachParked reads them.
	Selected() string
	// EachParked runs a query and hands on its rows until each returns false. The
	// columns are those of parkedColumns.
	EachParked(ctx context.Context, db *sql.DB, query string, args []any, each func(d *store.ParkedDelivery) (more bool, err error)) error

	// Refs is what stands in the parentheses of ("offset", id) IN (…). There may be
	// none, or thousands.
	Refs(refs []store.Ref) Expr
	// Ranges is the condition that "offset" is in one of the ranges, at least one.
	Ranges(ranges []store.OffsetRange) Expr
	// Asked lists keys, in order, as an item of FROM with two columns: the key and its
	// place. LATERAL subqueries refer to it. It is empty where the database has no such
	// thing.
	Asked(keys []string) Expr
	// Types is the condition that a filter selects a row by its type.
	Types(filter notification.TypeFilter) Expr

	// Returning reports whether INSERT and UPDATE can return columns.
	Returning() bool
	// OnConflict is the end of an INSERT of rows of which some may be there by the
	// key: the columns take the values of the new row, unless that is so. No columns
	// leave what is there as it is.
	OnConflict(key, columns []string, unless Condition) string
	// NewRow is the end of an INSERT of one row that may be there by the key. If it is,
	// either nothing is written, or the statement fails with an error that Exists knows.
	NewRow(key []string) string
	// Exists reports whether an INSERT failed since there is a row with the same key.
	Exists(err error) bool
	// TakeCursors makes other writers of the cursors of a sink wait until the
	// transaction ends. It is the first statement of its transaction, but for those
	// that take the cursors of other sinks, and the statements behind it see what others
	// have committed before.
	TakeCursors(sink string) Expr
	// Together is the same as the two writes, in one statement where that can be.
	Together(first, second Expr) []Expr
	// Brief is the same as an UPDATE that begins a transaction, and has the server end that
	// transaction if its client does not go on within some seconds.
	Brief(update Expr) Expr
	// Announce is the same as a write, and makes listeners in other processes look at
	// the lanes if it changes a row.
	Announce(write Expr) Expr

	// WriteLease runs the update that leases a lane, and reads the row of it as it is
	// then: LeaseColumns. sql.ErrNoRows if it meets none.
	WriteLease(ctx context.Context, db *sql.DB, u Update, row *LeaseRow) error
	// MoveCursor runs the update that moves a checkpoint's cursor and renews its lease,
	// in q, which is the checkpoint's transaction, or the database if there is nothing
	// else to write. It is the first statement. committed is called behind the commit;
	// it is nil where the checkpoint is written already. store.ErrLeaseLost if the lane
	// is another's.
	MoveCursor(ctx context.Context, q Querier, c *store.Checkpoint, u Update) (committed func() error, err error)

	// Isolation is that of a checkpoint's transaction.
	Isolation() sql.IsolationLevel
	// Committable is a statement that fails if the transaction cannot be committed: it has
	// ended, a statement of it has failed, or a constraint is broken that is checked last.
	Committable() string
	// SQLState is the standard code of a server's error; "" if err has none.
	SQLState(err error) string
	// Collides reports whether a statement failed since another transaction wrote the same,
	// and can be repeated.
	Collides(err error) bool
	// Missing reports whether a statement of a caller's transaction failed since its
	// database has no such table, as statements name it.
	Missing(ctx context.Context, tx store.Execer, table string, err error) bool
	// Advise adds the way out to an error of the database, where there is one.
	Advise(err error) error

	// Beginning looks for where a new sink begins: before the first row, in log order,
	// that occurred at since or later, or with the zero time behind all that is
	// committed.
	Beginning(ctx context.Context, since time.Time) (Beginning, error)
	// Level is the one position at which all positions stand: store.ErrNotLevel.
	// Empty is before the oldest row.
	Level(positions []json.RawMessage) (json.RawMessage, error)
	// Places holds positions against the log as it is now, after they were read.
	Places(ctx context.Context, q Querier, positions []json.RawMessage) ([]Place, error)
	// Probe is that of the store.
	Probe(ctx context.Context) (store.Target, error)
	// Waiting are the ranges of the log in which the rows of some types wait that lanes of one
	// sink have before them, up to a target: each row in one of them. It asks nothing of the database.
	Waiting(lanes []WaitingLane, target store.Target, types notification.TypeFilter) ([]WaitingSpan, error)
	// Extent returns how many bytes the log has on disk, and for how long the oldest open
	// transaction that writes to it has been open.
	Extent(ctx context.Context) (bytes int64, held time.Duration, err error)
	// Holders is that of the store.
	Holders(ctx context.Context, sinks []string) ([]store.Holder, error)
}

// Place is a position that was held against the log.
type Place struct {
	// Conflict says why the position is of another log; "" if it is of this one.
	Conflict string
	// Through is an offset up to which every row is settled.
	Through int64
	// Settled is the condition that a row behind it is settled as well; empty where
	// none is.
	Settled Expr
}

// Beginning is where a new sink begins, as it was found outside of any transaction.
type Beginning struct {
	// Position is empty before the oldest row.
	Position json.RawMessage
	// Passed is how many rows are before it, up to store.PendingLimit.
	Passed int
	// Holds, if set, is asked in the transaction that writes the position: its error is
	// that the position means nothing any more.
	Holds func(ctx context.Context, q Querier) error
}

// Condition is that the new row of an INSERT has a value; the zero value is never so.
type Condition struct{ Column, Value string }

// Standard is the part of a Dialect in which databases mostly agree.
type Standard struct{}

// Quote is that of standard SQL.
func (Standard) Quote() string { return `"` }

// Whole is nothing where nothing can be hidden.
func (Standard) Whole([]string) string { return `` }

// LogTime takes times as they are.
func (Standard) LogTime(expression string) string { return expression }

// DueTime is the expression.
func (Standard) DueTime(expression string) string { return expression }

// ParseTime is for drivers that hand over every time as one.
func (Standard) ParseTime(text string) (time.Time, error) {
	return time.Time{}, fmt.Errorf("the driver hands over %q for a time", text)
}

// Selected are the columns as they stand.
func (Standard) Selected() string { return envelope }

// Asked is empty: each key is a query of its own.
func (Standard) Asked([]string) Expr { return Expr{} }

// Returning is true.
func (Standard) Returning() bool { return true }

// OnConflict is the form that PostgreSQL and SQLite share.
func (Standard) OnConflict(key, columns []string, unless Condition) string {
	if len(columns) == 0 {
		return ` ON CONFLICT (` + strings.Join(key, `, `) + `) DO NOTHING`
	}
	set := make([]string, len(columns))
	for i, c := range columns {
		set[i] = c + ` = EXCLUDED.` + c
	}
	clause := ` ON CONFLICT (` + strings.Join(key, `, `) + `) DO UPDATE SET ` + strings.Join(set, `, `)
	if unless.Column != "" {
		clause += ` WHERE EXCLUDED.` + unless.Column + ` <> '` + unless.Value + `'`
	}
	return clause
}

// NewRow leaves what is there as it is.
func (d Standard) NewRow(key []string) string { return d.OnConflict(key, nil, Condition{}) }

// Exists is false where NewRow makes no error of it.
func (Standard) Exists(error) bool { return false }

// TakeCursors locks the rows, always in one order.
func (Standard) TakeCursors(sink string) Expr {
	return SQL(`SELECT lane FROM {cursors} WHERE sink = ? ORDER BY lane {whole cursors} FOR UPDATE`, sink)
}

// Together is two statements.
func (Standard) Together(first, second Expr) []Expr { return []Expr{first, second} }

// Brief is the UPDATE alone.
func (Standard) Brief(update Expr) Expr { return update }

// Announce is the write alone.
func (Standard) Announce(write Expr) Expr { return write }

// Isolation is the database's default.
func (Standard) Isolation() sql.IsolationLevel { return sql.LevelDefault }

// SQLState is that of drivers whose errors have it.
func (Standard) SQLState(err error) string {
	var coded interface{ SQLState() string }
	if !errors.As(err, &coded) {
		return ""
	}
	return coded.SQLState()
}

// Committable shows that the transaction goes on.
func (Standard) Committable() string { return `SELECT 1` }

// Collides is false where there is one writer at a time.
func (Standard) Collides(error) bool { return false }

// Advise has nothing to add.
func (Standard) Advise(err error) error { return err }
