package store

import (
	"context"
)

// Reserver is a Store whose statements share a connection pool with the application.
type Reserver interface {
	// MaxConnections returns how many connections the pool may open; 0: no bound.
	MaxConnections() int

	// Reserve takes n connections, less than MaxConnections, out of the pool until release is
	// called. Meanwhile the statements of Leases and Deliveries use only these, and wait for one
	// of them instead of the pool. A broken one is replaced. Reserve waits until connections are
	// free or ctx is done. If some are already reserved, all callers share them, until the last
	// of them calls release.
	//
	// Without a bound it first takes two more at once, and fails if they cannot be had: the pool
	// behind a Borrower may be too small to reserve any.
	Reserve(ctx context.Context, n int) (release func(), err error)
}

// Borrower is a Reserver whose handle may take each connection from another pool, as that of pgx's
// stdlib.OpenDBFromPool does. The bound of that pool is not known: MaxConnections returns 0.
type Borrower interface {
	Reserver
	// Borrows reports whether it does.
	Borrows(ctx context.Context) (bool, error)
}

// Permit bounds the connections of several handles together. It waits until one of them is free, and
// calls connect. If that succeeds, release is called once, when the connection is closed. A nil
// Permit sets no bound.
type Permit func(ctx context.Context, connect func() error) (release func(), err error)

// Connect connects with a permit.
func (p Permit) Connect(ctx context.Context, connect func() error) (release func(), err error) {
	if p == nil {
		return func() {}, connect()
	}
	return p(ctx, connect)
}
