package forwarder

import "errors"

// Errors of a configuration, at New.
var (
	ErrConfig = errors.New("invalid forwarder configuration")
)

// Errors of a delivery, as they stand in the parked table.
var (
	// ErrNoRoute is why a notification is dead under the sink _unrouted.
	ErrNoRoute = errors.New("no route matches its type; add one and requeue it")
	// ErrPanic: the sink panicked.
	ErrPanic = errors.New("sink panicked")
)

// Errors that end the work on a lane, for a while.
var errLeaseExpired = errors.New("the lease ran out before the database could be reached")
