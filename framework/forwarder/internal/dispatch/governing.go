package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/sinks"
)

// With adaptive parallelism, a governor limits how many calls are in flight: one governor for
// the sink or, if the sink names destinations, one for each destination. The queue holds back a
// destination that has reached its limit, and continues with the others.

// maxGovernors is the maximum number of remembered destinations. For a further one, a
// destination with nothing in flight is forgotten.
const maxGovernors = 10_000

// hasLimitPerDestination reports whether each destination has its own limit. With batches, or with fairness,
// a slot may be used for several destinations.
func (d *Dispatcher) hasLimitPerDestination() bool {
	return d.sharesByDestination() && d.batch.Size < 2
}

// sharesByDestination reports whether destinations share the slots evenly.
func (d *Dispatcher) sharesByDestination() bool {
	return d.caller.Addresser != nil && d.settings.Fairness == ""
}

// limit returns how many calls may be in flight to all destinations.
func (d *Dispatcher) limit() int {
	if !d.settings.Parallelism.IsAdaptive() || d.hasLimitPerDestination() {
		return d.settings.Parallelism.Limit(d.pending)
	}
	return d.governor("").Limit()
}

// threshold returns the present limit if it is adaptive; with a limit for each destination, the
// sum of those in use.
func (d *Dispatcher) threshold() int {
	most := d.settings.Parallelism.Most()
	switch {
	case !d.settings.Parallelism.IsAdaptive():
		return most
	case !d.hasLimitPerDestination():
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

// governor returns the governor of a destination, or of the sink for "".
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

// adjustGovernors applies new settings. It keeps what was learned if it still applies.
func (d *Dispatcher) adjustGovernors(before policy.Settings) {
	if !d.settings.Parallelism.IsAdaptive() || (before.Fairness == "") != (d.settings.Fairness == "") {
		clear(d.governors)
		d.queue.Release()
	}
	for name, g := range d.governors {
		g.Adjust(d.settings.Parallelism.Adaptive)
		d.hold(name, g)
	}
}

// hold holds or releases a destination in the queue, depending on its calls in flight.
func (d *Dispatcher) hold(destination string, g *policy.Governor) {
	if d.hasLimitPerDestination() && d.governors[destination] == g {
		d.queue.Hold(destination, g.InFlight() >= g.Limit())
	}
}

// govern records that a call begins.
func (d *Dispatcher) govern(c *call) {
	if !d.settings.Parallelism.IsAdaptive() {
		return
	}
	if d.hasLimitPerDestination() {
		c.destination = c.items[0].destination
	}
	c.governor = d.governor(c.destination)
	c.governor.Begin()
	d.hold(c.destination, c.governor)
}

// learn records the result of a call.
func (d *Dispatcher) learn(c *call, now time.Time) {
	g := c.governor
	if g == nil {
		return
	}
	switch answered, pause := d.answer(c, now); {
	case c.probe:
		g.Drop()
	case pause > 0:
		g.Refused(c.began, now, pause)
	case answered:
		g.Answered(c.began, now)
	default:
		g.Drop()
	}
	d.hold(c.destination, g)
}

// answer reports whether the latency of a call counts and, if the destination refused it, for
// how long to wait: the longest pause of a batch. Other failures do not count, since an overloaded
// destination may fail at once.
func (d *Dispatcher) answer(c *call, now time.Time) (answered bool, pause time.Duration) {
	if errors.Is(c.ctx.Err(), context.Canceled) {
		return false, 0
	}
	for _, result := range c.results {
		switch class, until := sinks.Classify(result.Err); {
		case result.Err == nil:
			answered = true
		case errors.Is(result.Err, caller.ErrOpen):
			// the sink was not called
		case class == sinks.ClassThrottled:
			pause = max(pause, until.Sub(now), leastThrottle)
		case class == sinks.ClassUnavailable:
			pause = max(pause, leastThrottle)
		case errors.Is(result.Err, context.DeadlineExceeded), errors.Is(result.Err, ErrAbandoned):
			answered = true // a timeout counts as a slow answer
		}
	}
	return answered, pause
}
