package store

import (
	"context"
	"database/sql"
	"time"
)

// Canceller cancels scheduled notifications before their time.
type Canceller interface {
	// Cancel cancels, in the caller's transaction, the selected notifications that are still
	// scheduled by the database's clock, in the log or parked. It returns how many it cancelled,
	// without those already cancelled. It finds what the transaction sees, and so nothing that
	// other transactions have published but not committed.
	//
	// If the transaction commits before a notification's time, by the forwarder's clock, the
	// notification is not delivered. ErrCollision: another transaction cancels the same one and
	// the isolation level does not allow waiting; retry the transaction.
	Cancel(ctx context.Context, tx Execer, s Scheduled) (int, error)
}

// Scheduled selects notifications: those with an ID, otherwise those of Types with a Key.
type Scheduled struct {
	ID string
	// Types are all names of the type, including its aliases.
	Types []string
	Key   string
}

// Cancellation is the cancellation of a row of the log, and of its parked deliveries.
type Cancellation struct {
	Offset int64
	At     time.Time
}

// Claimer prevents notifications from being published twice within a period.
type Claimer interface {
	// Claim takes a uniqueness key for a period from now, by the database's clock, in the
	// caller's transaction, and reports whether it was free. While another transaction is taking
	// the same key, Claim waits for it to end; the key is free if the other rolls back.
	// ErrCollision: the isolation level does not allow waiting; retry the transaction.
	Claim(ctx context.Context, tx Execer, c Claim) (free bool, err error)
	// Unclaim frees a key that this transaction has claimed.
	Unclaim(ctx context.Context, tx Execer, c Claim) error
	// ClaimedUntil returns when a key becomes free, as the transaction sees it; the zero time
	// if it is free.
	ClaimedUntil(ctx context.Context, tx RowQuerier, c Claim) (time.Time, error)
}

// Claim is a uniqueness key of a type, and how long it is taken.
type Claim struct {
	Type, Key string
	Period    time.Duration
}

// Inbox notes which notifications consumers have handled.
type Inbox interface {
	// First notes an id for a consumer in the caller's transaction, and reports whether it was
	// not noted before. While another transaction is noting the same id, First waits for it to
	// end, and returns true if the other rolls back. So exactly one of all transactions that
	// commit was the first. ErrCollision: the isolation level does not allow waiting; retry the
	// transaction. ErrOtherDatabase: the database has no such table.
	First(ctx context.Context, tx Execer, consumer, id string) (bool, error)
}

// Execer is the part of a transaction that writes; a *sql.Tx is one.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// RowQuerier is the part of a transaction that reads one row; a *sql.Tx is one.
type RowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Diagnoser explains errors of an INSERT into the log in the caller's transaction.
type Diagnoser interface {
	// Diagnose returns err, or an error that wraps it and explains it, such as ErrOtherDatabase.
	// It may query the transaction, if that is still usable.
	Diagnose(ctx context.Context, tx Execer, err error) error
}
