// Package tables implements what is the same in all databases: cursors and leases, forwarders, parked
// deliveries, receipts and actions. It is written once, over a Dialect; a dialect adds the log.
//
// The Store of a dialect embeds Tables for the roles that they implement, and uses the Runner for its
// log.
//
// Every transaction that changes what belongs to a sink locks the sink's cursors first: a checkpoint
// by writing one of them, the others by Dialect.TakeCursors. So they neither deadlock nor interleave.
package tables

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Tables are the tables of one outbox. They are safe for concurrent use.
type Tables struct {
	db       *sql.DB
	run      *Runner
	dialect  Dialect
	source   store.Source // nil: the log is the database's own
	receipts bool
	raised   revisions
	reserved reservation
}

// New returns the tables that a Runner names. With receipts, checkpoints archive receipts. source is
// the log if it is not nil.
func New(db *sql.DB, r *Runner, receipts bool, source store.Source) *Tables {
	return &Tables{db: db, run: r, dialect: r.dialect, source: source, receipts: receipts}
}

// Source returns the source; nil if the log is the database's own.
func (t *Tables) Source() store.Source {
	if t == nil { // for a store that was not opened
		return nil
	}
	return t.source
}

// KeepsReceipts reports whether checkpoints archive receipts.
func (t *Tables) KeepsReceipts() bool { return t.receipts }

func (t *Tables) inTx(ctx context.Context, do func(tx *sql.Tx) error) error {
	return inTx(ctx, t.db, do)
}

// Beginner is a database or one connection to it.
type Beginner interface {
	BeginTx(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error)
}

// inTx runs a function in a transaction. READ COMMITTED lets its statements see, after a lock, what
// was committed before the lock, whatever the database's default is.
func inTx(ctx context.Context, db Beginner, do func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// inTxOf is inTx for some sinks. It locks their cursors in the order of their names, so that two
// transactions with common sinks do not deadlock.
func (t *Tables) inTxOf(ctx context.Context, sinks []string, do func(tx *sql.Tx) error) error {
	return t.inTx(ctx, func(tx *sql.Tx) error {
		for _, sink := range slices.Sorted(slices.Values(sinks)) {
			query, args := t.run.Render(t.dialect.TakeCursors(sink))
			if _, err := tx.ExecContext(ctx, query, args...); err != nil {
				return err
			}
		}
		return do(tx)
	})
}

// failed adds what was tried to an error of the database.
func (t *Tables) failed(err error, format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, t.dialect.Advise(err))...)
}

// tried is failed for the result of a method, if that is an error: it is deferred.
func (t *Tables) tried(err *error, format string, args ...any) {
	if *err != nil {
		*err = t.failed(*err, format, args...)
	}
}

// Time scans a nullable time; NULL is the zero time.
type Time struct {
	time.Time
	dialect Dialect
}

// NewTime returns a Time to scan into.
func NewTime(d Dialect) Time { return Time{dialect: d} }

func (r *Runner) time() Time { return NewTime(r.dialect) }

// Scan implements sql.Scanner.
func (t *Time) Scan(value any) (err error) {
	switch value := value.(type) {
	case nil:
		t.Time = time.Time{}
		return nil
	case time.Time:
		t.Time = value
	case string:
		t.Time, err = t.dialect.ParseTime(value)
	case []byte:
		t.Time, err = t.dialect.ParseTime(string(value))
	default:
		err = fmt.Errorf("the driver returned %T for a time", value)
	}
	t.Time = notification.ClampTime(t.Time)
	return err
}
