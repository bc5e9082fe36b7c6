package store

import "context"

// Presences is a Store whose server notices at once that a process has died: the kernel closes the
// process's connections, and the server ends its sessions.
type Presences interface {
	// OpenPresence opens a separate session that ends with ctx, and makes it hold a lock that no
	// other session can ever have. It fails with ErrNoPresence if that is not possible here.
	OpenPresence(ctx context.Context, owner string) (Presence, error)
}

// Presence is a session that shows the server that a forwarder is alive. The forwarder's row names
// it from Declare until Withdraw; meanwhile others may Evict the forwarder once the session is gone.
// Declare, Withdraw and Evict use the pool, and may be called at the same time as Beat.
type Presence interface {
	// Beat returns nil as an error only if the session still is what holds the lock. gone are the
	// presences of other forwarders, declared in this life of the server, whose sessions have ended.
	// They never come back.
	Beat(ctx context.Context) (gone []Gone, err error)

	// Declare names this presence in the forwarder's row; false if there is no such row yet, or if
	// the session's server is not the one of the pool.
	Declare(ctx context.Context) (declared bool, err error)

	// Withdraw removes it from the row. It may be repeated. held is false if the row no longer has what
	// Declare has written: then others may have the leases of the forwarder.
	Withdraw(ctx context.Context) (held bool, err error)

	// Evict removes another forwarder from the membership and ends its leases, if its row still names
	// the presence that is gone, and the server still lives the life in which it was declared.
	Evict(ctx context.Context, other Gone) (evicted bool, err error)

	// Close ends the session.
	Close() error
}

// Gone is the presence of a forwarder whose session has ended.
type Gone struct{ Owner, Presence string }
