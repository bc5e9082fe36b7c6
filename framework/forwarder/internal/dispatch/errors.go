package dispatch

import "errors"

// Errors of deliveries, as the parked table shows them. Package forwarder exports them.
var (
	ErrAbandoned      = errors.New("sink did not return after its deadline")
	ErrUnknownTooLong = errors.New("unknown for too long")
)
