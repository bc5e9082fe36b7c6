package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/sinks"
)

// Where the parallelism is adaptive a governor says how many calls may be in flight: one for
// the sink, or one for each destination where the sink tells them apart. The queue holds a
// destination that has as many, so that what goes to others goes on.

// maxGovernors is how many destinations have what was learned of them remembered. Beyond, one
// with nothing in flight is forgotten for one that is new.
const maxGovernors = 10_000

// isApart says whether each destination has a limit of its own. A batch, and a slot that
// fairness shares out otherwise, may be of several.
func (d *Dispatcher) isApart() bool {
	return d.caller.Addresser != nil && d.settings.Fairness == "" && d.batch.Size < 2
}

// limit is how many calls may be in flight to all destinations.
func (d *Dispatcher) limit() int {
	if !d.settings.Parallelism.IsAdaptive() || d.isApart() {
		return d.settings.Parallelism.Limit(d.pending)
	}
	return d.governor("").Limit()
}

// threshold is what an adaptive limit is now; of limits for each destination, the sum of those
// in use.
func (d *Dispatcher) threshold() int {
	most := d.settings.Parallelism.Most()
	switch {
	case !d.settings.Parallelism.IsAdaptive():
		return most
	case !d.isApart():
		return d.limit()
	}
	n := 0
	for _, g := range d.governors {
		if g.InFlight() > 0 {
			n += g.Limit()
		}
	}
	if n == 0 {
		return most
	}
	return min(n, most)
}

// governor is that of a destination; "": that of the sink.
func (d *Dispatcher) governor(destination string) *policy.Governor {
	g := d.governors[destination]
	if g != nil {
		return g
	}
	if len(d.governors) >= maxGovernors {
		for name, other := range d.governors {
			if other.InFlight() == 0 {
				delete(d.governors, name)
				break
			}
		}
	}
	g = policy.NewGovernor(d.settings.Parallelism.Adaptive)
	d.governors[destination] = g
	return g
}

// regovern takes over other settings. What was learned is kept where that means the same.
func (d *Dispatcher) regovern(before policy.Settings) {
	if !d.settings.Parallelism.IsAdaptive() || (before.Fairness == "") != (d.settings.Fairness == "") {
		clear(d.governors)
		d.queue.Release()
	}
	for name, g := range d.governors {
		g.Adjust(d.settings.Parallelism.Adaptive)
		d.hold(name, g)
	}
}

// hold has the queue hold a destination that has as many calls in flight as it may have.
func (d *Dispatcher) hold(destination string, g *policy.Governor) {
	if d.isApart() && d.governors[destination] == g {
		d.queue.Hold(destination, g.InFlight() >= g.Limit())
	}
}

// govern takes note that a call begins.
func (d *Dispatcher) govern(worker *call) {
	if !d.settings.Parallelism.IsAdaptive() {
		return
	}
	if d.isApart() {
		worker.destination = worker.items[0].destination
	}
	worker.governor = d.governor(worker.destination)
	worker.governor.Begin()
	d.hold(worker.destination, worker.governor)
}

// learn takes note of what came of a call.
func (d *Dispatcher) learn(worker *call) {
	g := worker.governor
	if g == nil {
		return
	}
	now := time.Now()
	switch answered, pause := d.answer(worker, now); {
	case worker.probe:
		g.Drop()
	case pause > 0:
		g.Refused(worker.began, now, pause)
	case answered:
		g.Answered(worker.began, now)
	default:
		g.Drop()
	}
	d.hold(worker.destination, g)
}

// answer says whether a call has an answer whose latency counts, and for how long the
// destination is left alone if it refused the call: the longest time of a batch's deliveries.
// A failure says little: it may come at once because the destination is overloaded.
func (d *Dispatcher) answer(worker *call, now time.Time) (answered bool, pause time.Duration) {
	if errors.Is(worker.ctx.Err(), context.Canceled) {
		return false, 0
	}
	for _, result := range worker.results {
		switch class, until := sinks.Classify(result.Err); {
		case result.Err == nil:
			answered = true
		case errors.Is(result.Err, caller.ErrOpen):
			// it was not called
		case class == sinks.ClassThrottled:
			pause = max(pause, until.Sub(now), leastThrottle)
		case class == sinks.ClassUnavailable:
			pause = max(pause, leastThrottle)
		case errors.Is(result.Err, context.DeadlineExceeded), errors.Is(result.Err, ErrAbandoned):
			answered = true // by its silence
		}
	}
	return answered, pause
}
