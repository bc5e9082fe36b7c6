package store

import "context"

// Reserver is a Store whose statements share a connection pool with the application.
type Reserver interface {
	// MaxConnections returns how many connections the pool may open; 0: no bound.
	MaxConnections() int

	// Reserve takes n connections, less than MaxConnections, out of the pool until release is
	// called. Meanwhile the statements of Leases and Deliveries use only these, and wait for one
	// of them instead of the pool. A broken one is replaced. Reserve waits until connections are
	// free or ctx is done. If some are already reserved, all callers share them, until the last
	// of them calls release.
	Reserve(ctx context.Context, n int) (release func(), err error)
}
