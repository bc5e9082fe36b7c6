package store

import (
	"context"
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
