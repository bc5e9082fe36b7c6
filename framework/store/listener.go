package store

import "context"

// News is the kind of an announcement that a Listener hears.
type News int

// The kinds of news.
const (
	// NewsUnknown: listening has begun; announcements before that may have been missed.
	NewsUnknown News = iota
	// NewsRows: the log may have grown.
	NewsRows
	// NewsLanes: a forwarder has released a lane.
	NewsLanes
)

// Listener is a Store whose database can announce news, so that a forwarder need not wait for
// its next look. An announcement may be lost, so the forwarder goes on looking.
type Listener interface {
	// Listen calls hear, one call at a time: with NewsUnknown when it has begun to listen, then
	// for each announcement. It returns nil when ctx is done. If it cannot hear any more, it
	// returns why, and the caller listens again after a pause. A store that is not configured
	// to listen returns nil at once. hear must not block.
	Listen(ctx context.Context, hear func(News)) error
}

// Announcer is a log that can announce its growth to listeners in other processes. Its methods
// are safe for concurrent use.
type Announcer interface {
	// Announce wakes the listeners of this log. It is called after the commit that made the log
	// grow, never inside a transaction. One call may announce many commits.
	Announce(ctx context.Context) error
}
