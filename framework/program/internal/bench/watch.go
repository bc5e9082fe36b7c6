package bench

import (
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill/benchmarks/durations"
	"github.com/waybill-go/waybill/benchmarks/receiver"
	"github.com/waybill-go/waybill/framework/event"
)

// watch counts and measures the deliveries of a sink. A delivery counts when the sink has returned a
// receipt.
type watch struct {
	receipts tally
	calls    *durations.Histogram  // how long calls took; nil if not measured
	waits    *receiver.Waits       // from commit to receipt; nil if not measured
	problem  atomic.Pointer[error] // the error of the last failed delivery; nil if none failed
}

// attempted notes the attempt of a delivery.
func (w *watch) attempted(a *event.Attempt) {
	if w.calls != nil {
		w.calls.Record(a.Duration)
	}
	if err := a.Err; err != nil {
		w.problem.Store(&err)
	} else if n, first := w.receipts.take(a.Delivery.ID); first && w.waits != nil {
		w.waits.Arrived(n, a.Began.Add(a.Duration))
	}
}

// Observe implements event.Observer: the forwarder reports each attempt to the watch of its sink.
func (d *delivering) Observe(e event.Event) {
	if a, is := e.(*event.Attempt); is {
		if w := d.watches[a.Delivery.Sink]; w != nil {
			w.attempted(a)
		}
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
