package store

import "context"

// News is what a Listener hears of.
type News int

// The news that there are.
const (
	// NewsUnknown: listening has begun, and anything may have been missed.
	NewsUnknown News = iota
	// NewsRows: the log may have grown.
	NewsRows
	// NewsLanes: a forwarder has given a lane back.
	NewsLanes
)

// Listener is a Store whose database can announce what is new, so that a forwarder
// need not wait for its next look. An announcement may be lost, so looking goes on
// meanwhile.
type Listener interface {
	// Listen calls hear, one call at a time: with NewsUnknown as soon as it listens,
	// then with each announcement. It runs until ctx is done, which gives nil, or
	// until it can hear nothing any more: the error says why, and the caller listens
	// again after a pause. A store that is not configured to listen returns nil at
	// once. hear must not block.
	Listen(ctx context.Context, hear func(News)) error
}

// Announcer is a log whose database can announce to listeners in other processes
// that it has grown. Its methods are safe for concurrent use.
type Announcer interface {
	// Announce wakes the listeners on this log. It is called after the commit
	// that made the log grow, never inside a transaction, and one call may stand
	// for many commits.
	Announce(ctx context.Context) error
}
