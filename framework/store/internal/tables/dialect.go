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

// Dialect is what differs between databases. Standard implements what most of them share.
type Dialect interface {
	Syntax
	Values
	Writes
	Faults
	OfLog
}

// Syntax is how a dialect writes statements. The Runner and all queries use it.
type Syntax interface {
	// Placeholder returns the nth argument of a statement, from 1.
	Placeholder(n int) string
	// Quote returns the quote character of identifiers.
	Quote() string
	// Limit returns LIMIT, before an argument.
	Limit() string
	// Whole returns the end of a SELECT, after LIMIT, that makes it fail if rows of one of the
	// tables, as statements name them, are hidden from this role. It may be empty.
	Whole(tables []string) string
	// Locking returns the end of a SELECT, after Whole, that locks the rows which it returns, and leaves out
	// those that another transaction has locked. It may be empty.
	Locking() string
	// Now returns the database's clock, which goes on within a transaction.
	Now() string
	// NowPlus returns the clock plus d, which may be negative.
	NowPlus(d time.Duration) Expr
	// Elapsed returns the number of microseconds since a time, as an integer.
	Elapsed(since string) string
	// LogTime returns a time in the log in a form that can be compared.
	LogTime(expression string) string
	// DueTime returns a time in the log in the form of parked.due_at.
	DueTime(expression string) string
	// Slot returns the slot of a row of the log, from its key and id.
	Slot() string
	// KeySlot returns the same of a parked delivery, which is in the slot of its group if it is collected.
	KeySlot() string
	// Position returns the function that finds the second of two texts in the first: its
	// position from 1, or 0.
	Position() string
	// MetadataIs returns the condition that a name has a value in the metadata of a row called p. Both
	// may be any text.
	MetadataIs(name, value string) Expr
	// MetadataHas returns the condition that the value of a name contains a text of plain characters.
	MetadataHas(name, part string) Expr
	// Refs returns the content of the parentheses in ("offset", id) IN (…). There may be none,
	// or thousands.
	Refs(refs []store.Ref) Expr
	// Ranges returns the condition that "offset" is in one of the ranges; there is at least one.
	Ranges(ranges []store.OffsetRange) Expr
	// Asked returns keys, in order, as an item of FROM with two columns: the key and its index.
	// LATERAL subqueries refer to it. It is empty if the database does not support that.
	Asked(keys []string) Expr
	// Types returns the condition that a filter selects a row by its type.
	Types(filter notification.TypeFilter) Expr
	// Returning reports whether INSERT and UPDATE can return columns.
	Returning() bool
	// OnConflict returns the end of an INSERT of rows, some of whose keys may exist already: the
	// columns of those rows get the new values, unless the condition holds. Without columns,
	// existing rows stay unchanged.
	OnConflict(key, columns []string, unless Condition) string
	// Merge returns the end of an INSERT of rows, some of whose keys may exist already: set assigns to columns
	// of those rows, in order, with new.column and old.column for the values of the new and the existing row.
	Merge(table string, key []string, set Expr) Expr
	// NewRow returns the end of an INSERT of one row whose key may exist already. If it does,
	// either nothing is written, or the statement fails with an error for which Exists is true.
	NewRow(key []string) string
	// Counted returns a count for a SELECT that an INSERT writes, and a statement to execute before it, which
	// may be empty. Together they lock nothing that is counted.
	Counted(count Expr) (before, counted Expr)
	// TakeCursors makes other writers of a sink's cursors wait until the transaction ends. It is
	// the first statement of its transaction, apart from TakeCursors of other sinks, and the
	// statements after it see what others have committed before.
	TakeCursors(sink string) Expr
	// Together returns the two writes, as one statement if possible.
	Together(first, second Expr) []Expr
	// Brief returns an UPDATE that begins a transaction, and makes the server end that
	// transaction if its client does not go on within some seconds.
	Brief(update Expr) Expr
	// Announce returns a write that also makes listeners in other processes look at the lanes
	// if it changes a row.
	Announce(write Expr) Expr
}

// Values is how a dialect passes and returns values. What parks, lists and archives uses it.
type Values interface {
	// BindTime returns a time as an argument, as notification.ClampTime does; NULL if it is zero.
	BindTime(t time.Time) any
	// BindPayload returns a payload as an argument, never NULL.
	BindPayload(payload []byte) any
	// BinaryPayload reports whether the payload column takes more than JSON.
	BinaryPayload() bool
	// PayloadSize returns the number of bytes of the column payload, or about that.
	PayloadSize() string
	// ParseTime parses a time that the driver returns as a text.
	ParseTime(text string) (time.Time, error)
	// Limits returns how large a statement can be.
	Limits() store.Limits
	// Selected returns the columns of an envelope as EachParked reads them.
	Selected() string
	// EachParked runs a query for parkedColumns and calls each with its rows until that returns
	// false.
	EachParked(ctx context.Context, db *sql.DB, query string, args []any, each func(d *store.ParkedDelivery) (more bool, err error)) error
}

// Writes is how leases and checkpoints are written.
type Writes interface {
	// WriteLease runs the update that leases a lane, and reads the resulting LeaseColumns. It
	// returns sql.ErrNoRows if no row matches.
	WriteLease(ctx context.Context, db *sql.DB, u Update, row *LeaseRow) error
	// MoveCursor runs the update that moves a checkpoint's cursor and renews its lease, in q:
	// the checkpoint's transaction, or the database if there is nothing else to write. It is the
	// first statement. committed is called after the commit; it is nil if the checkpoint is
	// already written. It fails with store.ErrLeaseLost if another owner has the lane.
	MoveCursor(ctx context.Context, q Querier, c *store.Checkpoint, u Update) (committed func() error, err error)
	// OldVersions is store.Deliveries.OldVersions.
	OldVersions() int
	// Isolation returns the isolation level of a checkpoint's transaction.
	Isolation() sql.IsolationLevel
	// Committable returns a statement that fails if the transaction cannot be committed: it has
	// ended, a statement has failed, or a deferred constraint is violated.
	Committable() string
}

// Faults is what errors of the database mean.
type Faults interface {
	// SQLState returns the standard code of a server's error, or "".
	SQLState(err error) string
	// Collides reports whether a statement failed because another transaction wrote the same
	// row, and can be retried.
	Collides(err error) bool
	// Exists reports whether an INSERT failed because a row with the same key exists.
	Exists(err error) bool
	// Missing reports whether a statement in a caller's transaction failed because its database
	// has no such table, as statements name it.
	Missing(ctx context.Context, tx store.Execer, table string, err error) bool
	// Advise adds a hint to an error of the database, if there is one.
	Advise(err error) error
}

// OfLog is what only a dialect knows about its log. New sinks, and all that compares cursors with the log,
// use it.
type OfLog interface {
	// Beginning finds where a new sink begins: before the first row, in log order, that
	// occurred at since or later; for the zero time after everything committed.
	Beginning(ctx context.Context, since time.Time) (Beginning, error)
	// Level returns the common position of all positions, or store.ErrNotLevel. Empty means
	// before the oldest row.
	Level(positions []json.RawMessage) (json.RawMessage, error)
	// Places compares positions, which were read before, with the log as it is now.
	Places(ctx context.Context, q Querier, positions []json.RawMessage) ([]Place, error)
	// ProbeLog is store.Log.Probe, and ReadLog store.Log.NewReader, of the database's own log.
	ProbeLog(ctx context.Context) (store.Target, error)
	ReadLog(position json.RawMessage, filter store.Filter) (store.Reader, error)
	// Waiting returns the ranges of the log with the rows of some types that lanes of one sink
	// still have to read, up to a target; each row is in one range. It does not query the
	// database.
	Waiting(lanes []WaitingLane, target store.Target, types notification.TypeFilter) ([]WaitingSpan, error)
	// Extent returns the size of the log on disk, and the age of the oldest open transaction
	// that writes to it.
	Extent(ctx context.Context) (bytes int64, held time.Duration, err error)
	// Kept returns what the sinks with cursors, and the given ones, keep in the log.
	Kept(ctx context.Context, sinks []string) (Kept, error)
}

// Place is a position that was compared with the log.
type Place struct {
	// Conflict says why the position belongs to another log; "" if it belongs to this one.
	Conflict string
	// Through is an offset up to which every row is settled.
	Through int64
	// Settled is the condition that a row after Through is settled as well; empty if none is.
	Settled Expr
}

// Beginning is where a new sink begins, found outside of any transaction.
type Beginning struct {
	// Position is empty before the oldest row.
	Position json.RawMessage
	// Passed is the number of rows before it, up to store.PendingLimit.
	Passed int
	// Holds, if set, is called in the transaction that writes the position. It returns an error
	// if the position is no longer valid.
	Holds func(ctx context.Context, q Querier) error
}

// MetadataPath returns the path of a name in the metadata, as MySQL and SQLite write it.
func MetadataPath(name string) string {
	quoted, err := json.Marshal(name)
	if err != nil {
		panic(err) // texts can always be encoded
	}
	return `$.` + string(quoted)
}

// Condition is that the new row of an INSERT has a value; the zero value never holds.
type Condition struct{ Column, Value string }

// Standard implements the methods of a Dialect that are the same in most databases.
type Standard struct{}

// Quote returns the quote of standard SQL.
func (Standard) Quote() string { return `"` }

// Limit returns the word of PostgreSQL, MySQL and SQLite.
func (Standard) Limit() string { return "LIMIT" }

// Whole returns nothing, for databases that hide no rows.
func (Standard) Whole([]string) string { return `` }

// Locking returns the words of PostgreSQL and MySQL.
func (Standard) Locking() string { return ` FOR UPDATE SKIP LOCKED` }

// Slot returns the column.
func (Standard) Slot() string { return `slot` }

// LogTime returns the expression.
func (Standard) LogTime(expression string) string { return expression }

// DueTime returns the expression.
func (Standard) DueTime(expression string) string { return expression }

// ParseTime fails, for drivers that return times as time.Time.
func (Standard) ParseTime(text string) (time.Time, error) {
	return time.Time{}, fmt.Errorf("the driver returned %q for a time", text)
}

// PayloadSize counts bytes in MySQL, and of a BLOB in SQLite.
func (Standard) PayloadSize() string { return `length(payload)` }

// Selected returns the columns unchanged.
func (Standard) Selected() string { return envelope }

// Asked is empty: each key needs its own query.
func (Standard) Asked([]string) Expr { return Expr{} }

// Returning returns true.
func (Standard) Returning() bool { return true }

// OnConflict returns the syntax that PostgreSQL and SQLite share.
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

// Merge returns the syntax that PostgreSQL and SQLite share.
func (Standard) Merge(table string, key []string, set Expr) Expr {
	set.Text = strings.NewReplacer(`new.`, `EXCLUDED.`, `old.`, `{`+table+`}.`).Replace(set.Text)
	return SQL(` ON CONFLICT (`+strings.Join(key, `, `)+`) DO UPDATE SET ?`, set)
}

// NewRow leaves an existing row unchanged.
func (d Standard) NewRow(key []string) string { return d.OnConflict(key, nil, Condition{}) }

// Exists returns false, since NewRow does not fail.
func (Standard) Exists(error) bool { return false }

// Counted returns the count.
func (Standard) Counted(count Expr) (before, counted Expr) { return Expr{}, count }

// TakeCursors locks the rows, always in the same order.
func (Standard) TakeCursors(sink string) Expr {
	return SQL(`SELECT lane FROM {cursors} WHERE sink = ? ORDER BY lane {whole cursors} FOR UPDATE`, sink)
}

// Together returns two statements.
func (Standard) Together(first, second Expr) []Expr { return []Expr{first, second} }

// Brief returns the UPDATE unchanged.
func (Standard) Brief(update Expr) Expr { return update }

// Announce returns the write unchanged.
func (Standard) Announce(write Expr) Expr { return write }

// OldVersions returns 0, for databases in which the newest version of a row is found at once.
func (Standard) OldVersions() int { return 0 }

// Isolation returns the database's default.
func (Standard) Isolation() sql.IsolationLevel { return sql.LevelDefault }

// SQLState returns the code of errors with a method SQLState.
func (Standard) SQLState(err error) string {
	var coded interface{ SQLState() string }
	if !errors.As(err, &coded) {
		return ""
	}
	return coded.SQLState()
}

// Committable returns a statement that works in any open transaction.
func (Standard) Committable() string { return `SELECT 1` }

// Collides returns false, for databases with one writer at a time.
func (Standard) Collides(error) bool { return false }

// Advise adds nothing.
func (Standard) Advise(err error) error { return err }

// WaitingLane is a lane and its cursor's position.
type WaitingLane struct {
	Lane     store.Lane
	Position json.RawMessage
}

// WaitingSpan is a range of the log with rows that lanes of one sink still have to read.
type WaitingSpan struct {
	// The rows are after the offset After, up to Last.
	After, Last int64
	// Count counts the first rows of a part of the range, in the order of their offsets, up to a
	// limit over all lanes. It calls found for each lane that has any, with its index among the
	// requested ones.
	Count func(ctx context.Context, after, last int64, limit int, found func(lane int, w Waiting)) error
}

// Waiting is what one lane has in a part of the log.
type Waiting struct {
	Rows    int
	Oldest  time.Time // when the oldest of them occurred
	Through int64     // the offset of the last of them
}
