package store

import "context"

// Reserver is a Store whose statements share a pool of connections with an application.
type Reserver interface {
	// MaxConnections is how many connections the pool may open; 0: no bound.
	MaxConnections() int

	// Reserve takes n connections out of the pool, n below MaxConnections, until release
	// is called. Meanwhile what Leases and Deliveries say runs on them alone, and waits
	// for one of them rather than for the pool. One that breaks is replaced. Reserve
	// waits for connections that are in use, until ctx is done. Where some are reserved
	// already, those serve all who reserve: release ends that with the last one.
	Reserve(ctx context.Context, n int) (release func(), err error)
}
