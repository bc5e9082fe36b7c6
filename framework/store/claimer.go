package store

import (
	"context"
	"time"
)

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
