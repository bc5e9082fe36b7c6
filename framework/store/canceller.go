package store

import (
	"context"
	"time"
)

// Canceller cancels notifications that are scheduled: their time has not come yet.
type Canceller interface {
	// Cancel cancels, in the caller's transaction, what a selection finds and is still
	// scheduled by the database's clock, in the log or where it is parked. It returns how
	// many notifications that is, without those that are cancelled already. It finds what
	// the transaction sees: not what others have published and not committed yet.
	//
	// A notification of which the transaction commits before its time, by the clock of the
	// forwarder, is not delivered. ErrCollision: another transaction cancels the same, the
	// isolation level allows no waiting, and the transaction is to be repeated.
	Cancel(ctx context.Context, tx Execer, s Scheduled) (int, error)
}

// Scheduled selects notifications: those of an ID, or else those of Types with a Key.
type Scheduled struct {
	ID string
	// Types are all names of the type: its own and those that it had.
	Types []string
	Key   string
}

// Cancellation is that of a row of the log, and of what is parked of it.
type Cancellation struct {
	Offset int64
	At     time.Time
}
