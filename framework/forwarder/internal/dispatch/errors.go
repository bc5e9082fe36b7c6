package dispatch

import "errors"

// Errors of a delivery, as they stand in the parked table. Package forwarder exports
// them.
var (
	ErrPanic          = errors.New("sink panicked")
	ErrAbandoned      = errors.New("sink did not return after its deadline")
	ErrResults        = errors.New("sink gave too few results")
	ErrTooOld         = errors.New("older than retry.max_age")
	ErrUnknownTooLong = errors.New("unknown for longer than on_unknown.retry_for")
)
