package dispatch

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/sinks"
)

// observe reports a call that has ended to the observer.
func (d *Dispatcher) observe(c *call, now time.Time) {
	if d.observer == nil {
		return
	}
	took := now.Sub(c.began)
	if d.caller.Batcher != nil {
		d.observer.Observe(&event.Batch{Sink: d.name, Deliveries: len(c.deliveries), Began: c.began, Duration: took})
	}
	for i, delivery := range c.deliveries {
		result := c.results[i]
		c.attempt = event.Attempt{Delivery: delivery, Err: result.Err, Receipt: result.Receipt, Began: c.began, Duration: took}
		if result.Err != nil {
			c.attempt.Class, _ = sinks.Classify(result.Err)
		}
		d.observer.Observe(&c.attempt)
	}
}

// available reports that the sink is available again, and wakes the workers.
func (d *Dispatcher) available() {
	d.log.Info("sink is available again")
	event.Tell(d.observer, &event.BreakerChange{Sink: d.name})
	d.work.Broadcast()
}

// opened reports that the sink's breaker has opened. ctx is for the log line.
func (d *Dispatcher) opened(ctx context.Context, message string, err error) {
	d.log.ErrorContext(ctx, message, "error", err)
	event.Tell(d.observer, &event.BreakerChange{Sink: d.name, Open: true, Cause: err})
}

// observeDestination reports to the observer that a destination's breaker has opened, with the
// cause, or closed.
func (d *Dispatcher) observeDestination(name string, cause error) {
	event.Tell(d.observer, &event.BreakerChange{Sink: d.name, Destination: name, Open: cause != nil, Cause: cause})
}

// throttled reports that the sink is throttled until then.
func (d *Dispatcher) throttled(f *failure, until time.Time) {
	d.log.WarnContext(f.call.logged(), "sink is throttled, its deliveries wait", "error", f.err)
	event.Tell(d.observer, &event.Throttling{Sink: d.name, Until: until, Cause: f.err})
}
