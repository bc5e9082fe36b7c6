package forwarder

import (
	"errors"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/settings"
)

// ErrConfig: the configuration is not valid.
var ErrConfig = settings.ErrConfig

// ErrNotRunning: Reload and RunDatabase work only while Run runs.
var ErrNotRunning = errors.New("the forwarder is not running")

// Errors of deliveries, as the parked table shows them.
var (
	// ErrNoRoute: a notification under the sink _unrouted has no route.
	ErrNoRoute = errors.New("no route matches its type; add one, and run: waybill parked reroute")
	// ErrOpen: the sink could not be opened.
	ErrOpen = caller.ErrOpen
	// ErrPanic: the sink panicked.
	ErrPanic = caller.ErrPanic
	// ErrAbandoned: a call of the sink did not return after its deadline.
	ErrAbandoned = dispatch.ErrAbandoned
	// ErrResults: a sink did not return one result for each delivery of a batch.
	ErrResults = caller.ErrResults
	// ErrUnknownTooLong: the sink did not know the type or version for as long as such a
	// delivery is tried again.
	ErrUnknownTooLong = dispatch.ErrUnknownTooLong
)

// ErrLeaseExpired: work on a lane ended because its lease could not be renewed in time. An
// Observer sees it.
var ErrLeaseExpired = dispatch.ErrLeaseExpired
