package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// settle ends the turn of the items of a call, or puts them back.
func (d *Dispatcher) settle(c *call) {
	d.settling = c.span
	d.inFlight -= len(c.items)
	d.learn(c)
	for i, it := range c.items {
		if it == nil {
			continue // it was put back after a failed one
		}
		d.queue.Done(it)
		it.lane.ended(1)
		d.probed(it)
		switch result := c.results[i]; {
		case it.lane.ledger != nil && d.isAborted(it, result.Err):
			d.pending--
			if result.Err != nil {
				c.abortBehind(i)
			}
		case it.lane.over != nil:
			d.pending--
			if result.Err == nil {
				it.lane.made = append(it.lane.made, Settlement{item: it, Receipt: result.Receipt, Delivered: true})
			}
		case result.Err == nil:
			d.delivered(it, result.Receipt)
		case errors.Is(result.Err, caller.ErrPassesBy):
			d.passedBy(it)
		default:
			if it.chained {
				d.unchain(c, i)
			}
			d.failed(it, result.Err, c.ctx)
		}
	}
	for _, it := range slices.Backward(d.back) {
		d.offerAgain(it, true)
	}
	clear(d.back)
	d.back = d.back[:0]
	d.settling = nil
}

// abortBehind sets the errors of the later items of a key behind one whose transaction is aborted:
// they were not tried, so that their errors say nothing about them.
func (c *call) abortBehind(aborted int) {
	for i := aborted + 1; i < len(c.items) && c.follows(i); i++ {
		if c.results[i].Err != nil {
			c.results[i].Err = sinks.ErrAborted
		}
	}
}

// unchain puts the later items of a failed item's key in the batch back behind it, without
// spending an attempt. Those that were delivered nevertheless stay delivered.
func (d *Dispatcher) unchain(c *call, failed int) {
	it := c.items[failed]
	it.chained = false
	for i := len(c.items) - 1; i > failed; i-- {
		behind := c.items[i]
		switch {
		case behind == nil || behind.lane != it.lane || behind.Key != it.Key:
		case c.results[i].Err == nil:
			behind.chained = true // so that settling it does not advance its key
		default:
			c.items[i] = nil
			d.queue.Done(behind)
			behind.lane.ended(1)
			behind.Attempt--
			behind.chained = false
			it.lane.keys.Unpop(it.Key, behind)
		}
	}
}

func (d *Dispatcher) delivered(it *item, receipt notification.Receipt) {
	if d.breaker.Delivered() {
		d.available()
	}
	d.reached(it)
	d.pending--
	it.lane.stats.Delivered++
	it.lane.delivered(it, receipt)
}

// passedBy settles an item that is not for the sink.
func (d *Dispatcher) passedBy(it *item) {
	d.pending--
	it.lane.stats.PassedBy++
	it.lane.passedBy(it)
}

// failed settles an item by the class of its error, or puts it back.
func (d *Dispatcher) failed(it *item, err error, ctx context.Context) {
	now := time.Now()
	class, until := sinks.Classify(err)
	if errors.Is(err, context.Canceled) && errors.Is(ctx.Err(), context.Canceled) {
		class = sinks.ClassCancelled // whatever error the sink returned
	} else if class == sinks.ClassCancelled {
		class = sinks.ClassTransient // this process did not cancel it
	}
	d.tried.note(it)
	if class == sinks.ClassInvalid {
		d.dead(it, err) // nothing was sent, so it says nothing about a destination
		return
	}
	if d.destinationFailed(it, class, until, err, now) {
		return
	}
	switch class {
	case sinks.ClassPermanent:
		d.refused(it, err, now)
	case sinks.ClassUnknown:
		d.unknown(it, err, now)
	case sinks.ClassThrottled:
		d.putBack(it, true)
		if d.breaker.Throttle(later(until, now.Add(leastThrottle)), now, err) {
			d.throttled(until, err)
		}
	case sinks.ClassUnavailable:
		d.unavailable(it, err, now)
	case sinks.ClassCancelled:
		d.putBack(it, true)
	default:
		if d.breaker.Unreachable() && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrAbandoned)) {
			d.unavailable(it, err, now) // the probe got no answer
			return
		}
		d.transient(it, err, now)
	}
}

// refused settles a permanently refused item as dead, unless the sink refuses all items.
func (d *Dispatcher) refused(it *item, err error, now time.Time) {
	wasOpen := d.breaker.IsOpen()
	refusal := d.breaker.Refused(now, err)
	switch isOpen := d.breaker.IsOpen(); {
	case wasOpen && !isOpen:
		d.available()
	case !wasOpen && isOpen:
		d.opened("the sink permanently refuses one delivery after the other, its deliveries wait", err)
	}
	switch refusal {
	case policy.RefusalFinal:
		d.dead(it, err)
	case policy.RefusalProbe:
		d.retry(it, err)
	default:
		d.putBack(it, false)
	}
}

// unavailable puts back an item whose destination is unavailable. If other items were delivered
// since the item last found it unavailable, the item itself is the cause, and it fails.
func (d *Dispatcher) unavailable(it *item, err error, now time.Time) {
	switch recovered := d.breaker.Recovered(); {
	case it.unavailable == 0:
		it.unavailable = recovered + 1
	case it.unavailable <= recovered && !d.breaker.IsOpen():
		d.transient(it, err, now)
		return
	}
	d.putBack(it, false) // so that the next probe is another item: this one's own destination may be down
	d.sinkUnavailable(err, now)
}

// sinkUnavailable opens the sink's breaker, unless it is open.
func (d *Dispatcher) sinkUnavailable(err error, now time.Time) {
	if d.breaker.Unavailable(now, err) {
		d.opened("sink is unavailable, its deliveries wait", err)
	}
}

// transient settles an item that failed temporarily.
func (d *Dispatcher) transient(it *item, err error, now time.Time) {
	if d.breaker.Answered() {
		d.available()
	}
	spent, began := d.breaker.Failed(now, keyOrID(it), err)
	if began {
		d.opened("nearly all deliveries to the sink fail, they wait", err)
	}
	if !spent {
		it.lane.stats.Failed++
		d.putBack(it, false) // another item may succeed
		return
	}
	d.retry(it, err)
}

// retry parks an item for its next attempt, or settles it as dead if it has none left.
func (d *Dispatcher) retry(it *item, err error) {
	retry, _ := d.settings.Retry.For(d.typeOf(it.Type))
	if retry.Exhausted(it.Attempt) {
		d.dead(it, err)
		return
	}
	it.lane.stats.Failed++
	d.pending--
	it.lane.failed(it, err, retry.Pause(it.Attempt))
}

// keyOrID identifies an item for the breaker, which counts failures of several keys.
func keyOrID(it *item) string { return cmp.Or(it.Key, it.ID) }

// unknown settles an item whose type or version this process does not know, as during a rolling
// deployment. The attempt does not count. After policy.UnknownAge the item is dead.
func (d *Dispatcher) unknown(it *item, err error, now time.Time) {
	if d.breaker.Answered() {
		d.available()
	}
	var age time.Duration
	if !it.firstParked.IsZero() {
		age = now.Sub(it.firstParked)
	}
	if age > policy.UnknownAge {
		d.dead(it, fmt.Errorf("%w (%s): %w", ErrUnknownTooLong, policy.UnknownAge, err))
		return
	}
	it.lane.stats.Failed++
	it.Attempt--
	d.pending--
	it.lane.failed(it, err, d.settings.Retry.PauseUnknown(age))
}

func (d *Dispatcher) dead(it *item, err error) {
	d.pending--
	it.lane.stats.Dead++
	it.lane.died(it, err)
}

// offerAgain queues an item again: at the front or at the end.
func (d *Dispatcher) offerAgain(it *item, front bool) {
	if it.lane.suspended {
		it.lane.held = append(it.lane.held, it)
		return
	}
	d.queue.Push(it, d.groupOf(it), front)
}

// putBack undoes an attempt that does not count. With front, the items of the call being
// settled are the next to go.
func (d *Dispatcher) putBack(it *item, front bool) {
	it.Attempt--
	if front {
		d.back = append(d.back, it)
	} else {
		d.offerAgain(it, false)
	}
}

// leastThrottle is the shortest throttling.
const leastThrottle = 100 * time.Millisecond

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
