// Package tables implements what is the same in all databases: cursors and leases, forwarders, parked
// deliveries, receipts and actions. It is written once, over a Dialect; a dialect adds the log.
//
// The Store of a dialect embeds Tables, and the types of packages acts and looks, for the roles that they
// implement, and uses the Runner for its log.
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

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Tables are what publishers and forwarders do with the tables of one outbox. They are safe for concurrent
// use.
type Tables struct {
	run      *Runner
	receipts bool
	reserved reservation
}

// New returns the tables that a Runner names. With receipts, checkpoints archive receipts.
func New(r *Runner, receipts bool) *Tables { return &Tables{run: r, receipts: receipts} }

// Handle returns the database of the outbox, for transactions of those who get only the store.
func (t *Tables) Handle() *sql.DB { return t.run.DB }

// Source returns the source; nil if the log is the database's own.
func (t *Tables) Source() store.Source {
	if t == nil { // for a store that was not opened
		return nil
	}
	return t.run.Source
}

// Roles are the roles of every store.
type Roles interface {
	store.Log
	store.Leases
	store.Deliveries
	store.Inspector
	store.Operator
	store.Pruner
	store.Inbox
	store.Reserver
	store.Schedules
	store.Endpoints
	store.Canceller
	store.Claimer
	store.Diagnoser
	store.PrivateKeys
	store.Personal
}

// KeepsReceipts reports whether checkpoints archive receipts.
func (t *Tables) KeepsReceipts() bool { return t.receipts }

// InTx makes a durable step in a transaction.
func (r *Runner) InTx(ctx context.Context, step failpoint.Step, do func(tx *sql.Tx) error) error {
	return inTx(ctx, r.DB, step, do)
}

// Beginner is a database or one connection to it.
type Beginner interface {
	BeginTx(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error)
}

// inTx makes a durable step in a transaction. READ COMMITTED lets its statements see, after a lock, what
// was committed before the lock, whatever the database's default is.
func inTx(ctx context.Context, db Beginner, step failpoint.Step, do func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	if err := do(tx); err != nil {
		return err
	}
	return step.Do(tx.Commit)
}

// InTxOf is InTx for some sinks. It locks their cursors in the order of their names, so that two
// transactions with common sinks do not deadlock.
func (r *Runner) InTxOf(ctx context.Context, step failpoint.Step, sinks []string, do func(tx *sql.Tx) error) error {
	return r.InTx(ctx, step, func(tx *sql.Tx) error {
		for _, sink := range slices.Sorted(slices.Values(sinks)) {
			query, args := r.Render(r.Dialect.TakeCursors(sink))
			if _, err := tx.ExecContext(ctx, query, args...); err != nil {
				return err
			}
		}
		return do(tx)
	})
}

// Failed adds what was tried to an error of the database.
func (r *Runner) Failed(err error, format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, r.Dialect.Advise(err))...)
}

// Tried is failed for the result of a method, if that is an error: it is deferred.
func (r *Runner) Tried(err *error, format string, args ...any) {
	if *err != nil {
		*err = r.Failed(*err, format, args...)
	}
}

// Into returns what scans a nullable time into t; NULL is the zero time.
func Into(d Dialect, t *time.Time) sql.Scanner { return &timeScanner{t, d} }

// Into is Into for the Runner's dialect.
func (r *Runner) Into(t *time.Time) sql.Scanner { return Into(r.Dialect, t) }

type timeScanner struct {
	to      *time.Time
	dialect Dialect
}

// Scan implements sql.Scanner.
func (s *timeScanner) Scan(value any) (err error) {
	at := time.Time{}
	switch value := value.(type) {
	case nil:
		*s.to = at
		return nil
	case time.Time:
		at = value
	case string:
		at, err = s.dialect.ParseTime(value)
	case []byte:
		at, err = s.dialect.ParseTime(string(value))
	default:
		err = fmt.Errorf("the driver returned %T for a time", value)
	}
	*s.to = notification.ClampTime(at)
	return err
}
