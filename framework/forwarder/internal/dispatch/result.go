package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/sinks"
)

// failure is a failed attempt of an item.
type failure struct {
	*item
	call  *call
	err   error
	class sinks.Class
	until time.Time // of a throttling
	now   time.Time
	// number is that of the attempt, also if it turns out to use up none.
	number int
}

func newFailure(c *call, it *item, err error, now time.Time) *failure {
	f := &failure{item: it, call: c, err: err, now: now, number: it.Attempt}
	f.class, f.until = sinks.Classify(err)
	switch canceled := c.ctx != nil && errors.Is(c.ctx.Err(), context.Canceled); {
	case canceled && errors.Is(err, context.Canceled):
		f.class = sinks.ClassCancelled // whatever error the sink returned
	case f.class == sinks.ClassCancelled:
		f.class = sinks.ClassTransient // this process did not cancel it
	}
	return f
}

func (d *Dispatcher) delivered(it *item, receipt notification.Receipt) {
	if d.breaker.Delivered() {
		d.available()
	}
	d.reached(it)
	d.pending--
	it.count(&it.lane.stats.Delivered)
	it.lane.delivered(it, receipt)
}

// passedBy ends the turn of an item that is not for the sink.
func (d *Dispatcher) passedBy(it *item) {
	d.pending--
	it.count(&it.lane.stats.PassedBy)
	it.lane.passedBy(it)
}

// failed judges a failed attempt by the class of its error: the item is parked, dead, or put back.
func (d *Dispatcher) failed(f *failure) {
	d.tried.note(f.item)
	if f.class == sinks.ClassInvalid {
		d.dead(f) // nothing was sent, so it says nothing about a destination
		return
	}
	if sinks.IsApart(f.err) {
		d.apart(f)
		return
	}
	if d.judgeByDestination(f) {
		return
	}
	switch f.class {
	case sinks.ClassPermanent:
		d.refused(f)
	case sinks.ClassUnknown:
		d.unknown(f)
	case sinks.ClassThrottled:
		d.putBackInFront(f)
		if until := f.throttledUntil(); d.breaker.Throttle(until, f.now, f.err) {
			d.throttled(f, until)
		}
	case sinks.ClassUnavailable:
		d.unavailable(f)
	case sinks.ClassCancelled:
		d.putBackInFront(f)
	default:
		if d.breaker.Unreachable() && (errors.Is(f.err, context.DeadlineExceeded) || errors.Is(f.err, ErrAbandoned)) {
			d.unavailable(f) // the probe got no answer
			return
		}
		d.transient(f)
	}
}

// refused ends the turn of a permanently refused item as dead, unless the sink refuses all items.
func (d *Dispatcher) refused(f *failure) {
	wasOpen := d.breaker.IsOpen()
	refusal := d.breaker.Refused(f.now, f.err)
	switch isOpen := d.breaker.IsOpen(); {
	case wasOpen && !isOpen:
		d.available()
	case !wasOpen && isOpen:
		d.opened(f.call.logged(), "the sink permanently refuses one delivery after the other, its deliveries wait", f.err)
	}
	switch refusal {
	case policy.RefusalFinal:
		d.dead(f)
	case policy.RefusalProbe:
		d.retry(f)
	default:
		d.putBack(f)
	}
}

// unavailable puts back an item whose destination is unavailable. If other items were delivered
// since the item last found it unavailable, the item itself is the cause, and it fails.
func (d *Dispatcher) unavailable(f *failure) {
	switch recovered := d.breaker.Recovered(); {
	case f.unavailable == 0:
		f.unavailable = recovered + 1
	case f.unavailable <= recovered && !d.breaker.IsOpen():
		d.transient(f)
		return
	}
	d.putBack(f) // so that the next probe is another item: this one's own destination may be down
	d.sinkUnavailable(f.call.logged(), f.err)
}

// sinkUnavailable opens the sink's breaker, unless it is open. ctx is for the log line.
func (d *Dispatcher) sinkUnavailable(ctx context.Context, err error) {
	if d.breaker.Unavailable(time.Now(), err) {
		d.opened(ctx, "sink is unavailable, its deliveries wait", err)
	}
}

// transient ends the turn of an item that failed temporarily.
func (d *Dispatcher) transient(f *failure) {
	if d.breaker.Answered() {
		d.available()
	}
	spent, began := d.breaker.Failed(f.now, keyOrID(f.item), f.err)
	if began {
		d.opened(f.call.logged(), "nearly all deliveries to the sink fail, they wait", f.err)
	}
	if !spent {
		f.lane.stats.Failed++
		d.putBack(f) // another item may succeed
		return
	}
	d.retry(f)
}

// retry parks an item for its next attempt, or as dead if it has none left.
func (d *Dispatcher) retry(f *failure) {
	retry, _ := d.settings.Retry.For(d.typeOf(f.Type))
	if retry.Exhausted(f.Attempt) {
		d.dead(f)
		return
	}
	d.tryAgain(f, retry.Pause(f.Attempt))
}

// tryAgain parks an item for its next attempt after a pause.
func (d *Dispatcher) tryAgain(f *failure, pause time.Duration) {
	f.lane.stats.Failed++
	d.pending--
	d.logFailure(slog.LevelWarn, "delivery failed, retrying", f, "pause", pause.Round(time.Millisecond))
	f.noted()
	f.lane.parkRetrying(f.item, f.past.lastError, f.now.Add(pause))
}

// keyOrID identifies an item for the breaker, which counts failures of several keys.
func keyOrID(it *item) string { return cmp.Or(it.Key, it.ID) }

// unknown handles an item whose type or version this process does not know, as during a rolling
// deployment. The attempt does not count. After settings.UnknownAge the item is dead.
func (d *Dispatcher) unknown(f *failure) {
	if d.breaker.Answered() {
		d.available()
	}
	age := f.age()
	if age > settings.UnknownAge {
		f.err = fmt.Errorf("%w (%s): %w", ErrUnknownTooLong, settings.UnknownAge, f.err)
		d.dead(f)
		return
	}
	f.Attempt--
	d.tryAgain(f, d.settings.Retry.PauseUnknown(age))
}

// apart handles an item that lacks what only some items need. The attempt does not count, and the breaker is asked only
// whether nearly all items fail.
func (d *Dispatcher) apart(f *failure) {
	spent, began := d.breaker.Failed(f.now, keyOrID(f.item), f.err)
	if began {
		d.opened(f.call.logged(), "nearly all deliveries to the sink fail, they wait", f.err)
	}
	if !spent {
		f.lane.stats.Failed++
		d.putBack(f)
		return
	}
	f.Attempt--
	d.tryAgain(f, d.settings.Retry.PauseUnknown(f.age()))
}

// age returns how long a parked item has been due; 0 for one that is not parked.
func (f *failure) age() time.Duration {
	if f.firstParked.IsZero() {
		return 0
	}
	return f.now.Sub(f.dueFirst())
}

// dueFirst returns about when a parked item was first due.
func (it *item) dueFirst() time.Time {
	first := it.firstParked
	if it.DeliverAt.After(first) {
		first = it.DeliverAt
	}
	if it.unit != nil {
		first = first.Add(it.lane.dispatcher.collect.MaxWait)
	}
	return first
}

// dead ends the turn of an item that gets no further attempt.
func (d *Dispatcher) dead(f *failure) {
	d.pending--
	f.count(&f.lane.stats.Dead)
	d.logFailure(slog.LevelError, "delivery is dead", f)
	f.noted()
	f.lane.died(f.item, f.err)
}

// putBack undoes an attempt that does not count, and queues the item again.
func (d *Dispatcher) putBack(f *failure) {
	f.Attempt--
	d.enqueue(f.item, false)
}

// putBackInFront is putBack in front of all others, behind those that the same call put back there.
func (d *Dispatcher) putBackInFront(f *failure) {
	f.Attempt--
	f.call.back = append(f.call.back, f.item)
}

// leastThrottle is the shortest throttling.
const leastThrottle = 100 * time.Millisecond

func (f *failure) throttledUntil() time.Time {
	if least := f.now.Add(leastThrottle); f.until.Before(least) {
		return least
	}
	return f.until
}
