package forwarder

import (
	"errors"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
)

// ErrConfig is the class of all that is wrong with a configuration, at New.
var ErrConfig = policy.ErrConfig

// ErrNotRunning: there is nothing to reload before Run, and after it.
var ErrNotRunning = errors.New("the forwarder does not run")

// Errors of a delivery, as they stand in the parked table.
var (
	// ErrNoRoute is why a notification is dead under the sink _unrouted.
	ErrNoRoute = errors.New("no route matches its type; add one, and run: waybill parked reroute")
	// ErrOpen: the sink could not be opened.
	ErrOpen = caller.ErrOpen
	// ErrPanic: the sink panicked.
	ErrPanic = caller.ErrPanic
	// ErrAbandoned: a call of the sink did not come back after its deadline.
	ErrAbandoned = dispatch.ErrAbandoned
	// ErrResults: a sink of batches did not report a result for every delivery.
	ErrResults = caller.ErrResults
	// ErrTooOld: a delivery failed at an age at which it is not tried again.
	ErrTooOld = dispatch.ErrTooOld
	// ErrUnknownTooLong: its type or version stayed unknown for as long as such a delivery
	// is tried again.
	ErrUnknownTooLong = dispatch.ErrUnknownTooLong
)

// ErrLeaseExpired is why the work on a lane ended whose lease could not be renewed in time; an
// Observer sees it.
var ErrLeaseExpired = dispatch.ErrLeaseExpired
