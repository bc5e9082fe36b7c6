package forwarder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/sinks"
)

// settle ends the turn of all items of a call, or puts them back.
func (c *courier) settle(worker *call) {
	for given := len(worker.results); len(worker.results) < len(worker.items); {
		err := fmt.Errorf("%w: %d for a batch of %d", ErrResults, given, len(worker.items))
		worker.results = append(worker.results, sinks.Result{Err: err})
	}
	c.inFlight -= len(worker.items)
	for i, it := range worker.items {
		if it == nil {
			continue // it waits behind one that failed
		}
		c.turns.Done(it)
		it.lane.ended(1)
		switch result := worker.results[i]; {
		case it.lane.over:
			c.pending--
		case result.Err == nil:
			c.delivered(it, result.Receipt)
		case errors.Is(result.Err, errPassesBy):
			c.passed(it)
		default:
			if it.chained {
				c.unchain(worker, i)
			}
			c.failed(it, result.Err, worker.ctx)
		}
	}
	for _, it := range slices.Backward(c.back) {
		c.turns.Push(it, c.groupOf(it), true)
	}
	clear(c.back)
	c.back = c.back[:0]
}

// unchain has those that are in a batch behind one of their key that failed wait
// behind it again, with no attempt spent. One that was delivered all the same is.
func (c *courier) unchain(worker *call, failed int) {
	it := worker.items[failed]
	it.chained = false
	k := it.lane.keys[it.Key]
	for i := len(worker.items) - 1; i > failed; i-- {
		behind := worker.items[i]
		switch {
		case behind == nil || behind.lane != it.lane || behind.Key != it.Key:
		case worker.results[i].Err == nil:
			behind.chained = true // its key does not go on with it
		default:
			worker.items[i] = nil
			c.turns.Done(behind)
			behind.lane.ended(1)
			behind.Attempt--
			behind.chained = false
			k.pushFront(behind)
		}
	}
}

func (c *courier) delivered(it *item, receipt notification.Receipt) {
	if c.circuit.Delivered() {
		c.available()
	}
	c.pending--
	c.stats.Delivered++
	it.lane.delivered(it, receipt)
}

// failed settles an item that was not delivered by the class of its error, or puts
// it back.
func (c *courier) failed(it *item, err error, ctx context.Context) {
	if errors.Is(err, route.ErrExpression) {
		c.dead(it, err) // of its routes, which tells nothing of the destination
		return
	}
	now := time.Now()
	class, until := sinks.Classify(err)
	if errors.Is(err, context.Canceled) && errors.Is(ctx.Err(), context.Canceled) {
		class = sinks.ClassCancelled // whatever the sink made of it
	} else if class == sinks.ClassCancelled {
		class = sinks.ClassTransient // nobody here cancelled it
	}
	switch class {
	case sinks.ClassPermanent:
		if c.circuit.Delivered() {
			c.available()
		}
		c.dead(it, err)
	case sinks.ClassThrottled:
		c.putBack(it, true)
		if c.circuit.Throttle(later(until, now.Add(leastThrottle)), now) {
			c.log.Warn("sink is throttled, its deliveries wait", "error", err)
		}
	case sinks.ClassUnavailable:
		c.unavailable(it, err, now)
	case sinks.ClassCancelled:
		c.putBack(it, true)
	default:
		if c.circuit.Unreachable() && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrAbandoned)) {
			c.unavailable(it, err, now) // nobody answered a probe
			return
		}
		c.transient(it, err, now)
	}
}

// unavailable puts an item back whose destination could not be reached.
func (c *courier) unavailable(it *item, err error, now time.Time) {
	c.putBack(it, false) // the next probe is another one: this one's destination may be its own
	if c.circuit.Unavailable(now, err) {
		c.log.Error("sink is unavailable, its deliveries wait", "error", err)
	}
}

// transient settles an item that failed for the moment.
func (c *courier) transient(it *item, err error, now time.Time) {
	if c.circuit.Answered() {
		c.available()
	}
	key := it.Key
	if key == "" {
		key = it.ID
	}
	spent, began := c.circuit.Failed(now, key, err)
	if began {
		c.log.Error("nearly all deliveries to the sink fail, they wait", "error", err)
	}
	c.stats.Failed++
	if !spent {
		c.putBack(it, false) // another one may fare better
		return
	}
	policy, _ := c.sink.Retry.For(it.Type)
	pause := policy.Pause(it.Attempt)
	switch {
	case it.Attempt >= policy.MaxAttempts:
		c.dead(it, err)
	case policy.MaxAge > 0 && now.Add(pause).Sub(later(it.OccurredOn, it.DeliverAt)) > policy.MaxAge:
		c.dead(it, fmt.Errorf("%w (%s): %w", ErrTooOld, policy.MaxAge, err))
	default:
		c.pending--
		it.lane.failed(it, err, pause)
	}
}

func (c *courier) dead(it *item, err error) {
	c.pending--
	c.stats.Dead++
	it.lane.died(it, err)
}

// putBack undoes an attempt that counts as none. In front, the items of what is being
// settled are the next to go.
func (c *courier) putBack(it *item, front bool) {
	it.Attempt--
	if front {
		c.back = append(c.back, it)
	} else {
		c.turns.Push(it, c.groupOf(it), false)
	}
}

// available says that an outage is over.
func (c *courier) available() {
	c.log.Info("sink is available again")
	c.work.Broadcast()
}

// leastThrottle is how long a sink waits at least when it asks to be waited for.
const leastThrottle = 100 * time.Millisecond
