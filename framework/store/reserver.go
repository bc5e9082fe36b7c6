package store

import "context"

// Reserver is a Store whose statements share a pool of connections with an application.
type Reserver interface {
	// MaxConnections is how many connections the pool may open; 0: no bound.
	MaxConnections() int

	// Reserve takes n connections out of the pool, n below MaxConnections, until release
	// is called. Meanwhile the statements of Leases and Deliveries run on them alone,
	// and wait for one of them rather than for the pool. One that breaks is replaced.
	// Reserve waits for connections that are in use, until ctx is done. Where some are
	// reserved already, all callers share those, until the last of them calls release.
	Reserve(ctx context.Context, n int) (release func(), err error)
}
