package forwarder

import (
	"errors"

	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
)

// ErrConfig is the class of all that is wrong with a configuration, at New.
var ErrConfig = policy.ErrConfig

// Errors of a delivery, as they stand in the parked table.
var (
	// ErrNoRoute is why a notification is dead under the sink _unrouted.
	ErrNoRoute = errors.New("no route matches its type; add one, replay the type to its sink and discard this")
	// ErrPanic: the sink panicked.
	ErrPanic = errors.New("sink panicked")
	// ErrAbandoned: a call of the sink did not come back after its deadline.
	ErrAbandoned = errors.New("sink did not return after its deadline")
	// ErrResults: a sink of batches did not tell of all deliveries.
	ErrResults = errors.New("sink gave too few results")
	// ErrTooOld: a delivery failed at an age at which it is not tried again.
	ErrTooOld = errors.New("older than retry.max_age")
)

// Errors that end the work on a lane, for a while.
var errLeaseExpired = errors.New("the lease ran out before the database could be reached")
