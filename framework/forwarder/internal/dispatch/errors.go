package dispatch

import "errors"

// Errors of a delivery, as they stand in the parked table. Package forwarder exports
// them.
var (
	ErrAbandoned      = errors.New("sink did not return after its deadline")
	ErrTooOld         = errors.New("older than retry.max_age")
	ErrUnknownTooLong = errors.New("unknown for longer than on_unknown.retry_for")
)
