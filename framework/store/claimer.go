package store

import (
	"context"
	"time"
)

// Claimer keeps notifications from being published twice within a period.
type Claimer interface {
	// Claim takes a uniqueness key for a period from now, by the database's clock, in the
	// caller's transaction, and reports whether it was free. Where another transaction has
	// just taken the same, Claim waits for its end: the key is free if the other rolled back.
	// ErrCollision: the isolation level allows no waiting, and the transaction is to be
	// repeated.
	Claim(ctx context.Context, tx Execer, c Claim) (free bool, err error)
	// Unclaim frees a key that this transaction has claimed.
	Unclaim(ctx context.Context, tx Execer, c Claim) error
	// ClaimedUntil is until when a key is taken, as the transaction sees it; the zero time
	// if it is free.
	ClaimedUntil(ctx context.Context, tx RowQuerier, c Claim) (time.Time, error)
}

// Claim is a uniqueness key of a type, and for how long it is claimed.
type Claim struct {
	Type, Key string
	Period    time.Duration
}
