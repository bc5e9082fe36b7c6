package dispatch

import (
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/sinks"
)

// observe reports to the observer a call of the sink that has ended.
func (d *Dispatcher) observe(worker *call, now time.Time) {
	if d.observer == nil {
		return
	}
	took := now.Sub(worker.began)
	if d.caller.Batcher != nil {
		d.observer.Batch(policy.Batch{Sink: d.name, Deliveries: len(worker.deliveries), Began: worker.began, Duration: took})
	}
	for i, delivery := range worker.deliveries {
		result := worker.results[i]
		attempt := policy.Attempt{Delivery: delivery, Err: result.Err, Receipt: result.Receipt, Began: worker.began, Duration: took}
		if result.Err != nil {
			attempt.Class, _ = sinks.Classify(result.Err)
		}
		d.observer.Attempt(attempt)
	}
}

// available says that an outage is over.
func (d *Dispatcher) available() {
	d.log.Info("sink is available again")
	if d.observer != nil {
		d.observer.Breaker(policy.BreakerChange{Sink: d.name})
	}
	d.work.Broadcast()
}

// opened says that an outage has begun.
func (d *Dispatcher) opened(message string, err error) {
	d.log.ErrorContext(d.logged(), message, "error", err)
	if d.observer != nil {
		d.observer.Breaker(policy.BreakerChange{Sink: d.name, Open: true, Cause: err})
	}
}

// observeDestination reports that the outage of a destination has begun, by its cause, or is
// over.
func (d *Dispatcher) observeDestination(name string, cause error) {
	if d.observer != nil {
		d.observer.Breaker(policy.BreakerChange{Sink: d.name, Destination: name, Open: cause != nil, Cause: cause})
	}
}

// throttled says that the sink waits until a time.
func (d *Dispatcher) throttled(until time.Time, err error) {
	d.log.WarnContext(d.logged(), "sink is throttled, its deliveries wait", "error", err)
	if d.observer != nil {
		d.observer.Throttle(policy.Throttling{Sink: d.name, Until: until, Cause: err})
	}
}
