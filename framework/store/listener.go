package store

import "context"

// Listener is a Store whose database can tell that the log has grown, so that a
// forwarder need not wait for its next look. What is told may be lost, so looking
// goes on beside it.
type Listener interface {
	// Listen calls wake, one call at a time, as soon as it listens, since
	// something may have been missed before, and whenever somebody announces.
	// It runs until ctx is done, which gives nil, or until it hears nothing any
	// more: the error tells why, and the caller listens again after a pause. A
	// store that is not configured to listen returns nil at once. wake must not
	// block.
	Listen(ctx context.Context, wake func()) error
}

// Announcer is a log whose database can tell listeners in other processes that
// it has grown. Its methods are safe for concurrent use.
type Announcer interface {
	// Announce wakes whoever listens on this log. It is called after the commit
	// that made the log grow, never inside a transaction, and one call may stand
	// for many commits.
	Announce(ctx context.Context) error
}
