package dispatch

import "errors"

// Errors of deliveries, as the parked table shows them. Package forwarder exports them.
var (
	ErrAbandoned      = errors.New("sink did not return after its deadline")
	ErrTooOld         = errors.New("older than retry.max_age")
	ErrUnknownTooLong = errors.New("unknown for longer than on_unknown.retry_for")
)
