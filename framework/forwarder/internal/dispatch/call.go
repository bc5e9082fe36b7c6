package dispatch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/forwarder/internal/fairqueue"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/tracing"
	"github.com/waybill-go/waybill/sinks"
)

// The way of a call, in the order of this file: a worker fills it with items (fill), begins it, makes it without the
// lock, and judges its results (judge). What a failed result means is in result.go.

// call is a worker's call of the sink.
type call struct {
	items      []*item // empty: the worker is idle
	deliveries []*notification.Delivery
	results    []sinks.Result
	ctx        context.Context
	began      time.Time
	batcher    caller.Batcher  // takes several deliveries at once; nil: the sink takes one at a time
	release    func()          // releases ctx; may be nil
	abandoned  bool            // it did not return in time, and its items are judged
	probe      bool            // it tests whether a sink or destination is available again
	span       context.Context // for log lines; nil without tracing
	back       []*item         // to be put back in front of the queue, in order

	attempt event.Attempt // for the observer

	inLedgers bool // the items' lanes have ledgers

	governor    *policy.Governor // nil: none
	destination string           // the governor's destination
}

// reset makes a call ready for the next one.
func (c *call) reset() {
	if c.release != nil {
		c.release()
	}
	clear(c.items)
	clear(c.deliveries)
	clear(c.results)
	clear(c.back)
	*c = call{items: c.items[:0], deliveries: c.deliveries[:0], results: c.results[:0], back: c.back[:0]}
}

// logged returns the context for log lines about the call.
func (c *call) logged() context.Context {
	if c.span == nil {
		return context.Background()
	}
	return c.span
}

// fill fills a call with items that may go now; false if there are none.
func (d *Dispatcher) fill(c *call, now time.Time) bool {
	size, slots := d.allowed(now)
	if size == 0 {
		return false
	}
	d.take(c, size, slots*size, now)
	if len(c.items) == 0 {
		return false
	}
	d.since = now
	d.begin(c, now)
	return true
}

// allowed returns how many items the next call may have, and how many calls may be in flight; a size of 0 means that
// none may begin now.
func (d *Dispatcher) allowed(now time.Time) (size, slots int) {
	if d.queue.Len() == 0 {
		for l := range d.lanes {
			if l.full {
				l.look() // the reader may spill a hot key
			}
		}
		return 0, 0
	}
	slots = d.breaker.Limit(d.limit(), now)
	if slots == 0 {
		d.lookAt(d.breaker.Next())
	}
	if d.calls >= d.settings.Parallelism.Most() || d.calls-d.stuck >= slots {
		return 0, 0
	}
	if d.breaker.IsOpen() {
		return 1, slots // one is enough for a probe
	}
	size = d.batch.Size
	if filled := d.since.Add(d.batch.Wait); d.batch.Wait > 0 && now.Before(filled) && !d.fills(size, now) {
		d.lookAt(filled)
		return 0, 0
	}
	return size, slots
}

// take adds up to size items to a call. slots is how many items may be in flight.
func (d *Dispatcher) take(c *call, size, slots int, now time.Time) {
	postponed := 0
	scarce := d.inFlight >= slots/2
	if !scarce {
		for destination := range d.silent {
			d.letGo(destination)
		}
	}
	for len(c.items) < size {
		from, ok := d.queue.Next(slots)
		if !ok {
			return
		}
		if destination, inFlight := d.queue.Group(from); d.sharesByDestination() && destination != "" {
			if scarce && d.holdIfSilent(destination, now) {
				continue
			}
			if inFlight > 0 && inFlight >= slots-d.inFlight {
				return // a slow destination leaves some slots to others
			}
		}
		if !d.admitted && !d.admit(now) {
			return
		}
		d.admitted = true
		it := d.pop(from)
		it.lane.giveUpIfExpired(now)
		switch {
		case it.unit != nil && len(c.items) > 0: // it needs a call of its own
			d.queue.Done(it)
			d.enqueue(it, true)
			return
		case it.lane.isEnding():
			d.queue.Done(it)
			d.pending--
			continue
		case it.lane.isShut(it, now):
			continue
		case it.lane.verdicts != nil && d.endByVerdict(c, it, now):
			continue
		case d.parkIfQuiet(it, now), d.parkIfDown(it, slots, now):
			if postponed++; postponed == maxPostponements {
				d.lookAt(now) // releases the lock for others
				return
			}
			continue
		}
		d.admitted = false
		c.add(it)
		if it.unit != nil {
			return
		}
		if d.batch.Ordered && size > 1 && it.Key != "" && !it.loose {
			d.chain(c, size, now)
		}
	}
}

// pop returns the next item to go; while the breaker is open, the best probe.
func (d *Dispatcher) pop(from fairqueue.Origin) *item {
	if d.breaker.IsOpen() {
		return d.queue.PopPreferred(d.tried.prefers)
	}
	return d.queue.Pop(from)
}

// fills reports whether the items that may go now fill a batch.
func (d *Dispatcher) fills(size int, now time.Time) bool {
	if !d.rate.Has(size, now) {
		return false
	}
	n := d.queue.Len()
	if n >= size || !d.batch.Ordered || d.pending-d.inFlight < size {
		return n >= size
	}
	for it := range d.queue.All() {
		if it.Key != "" && !it.loose {
			n += it.lane.keys.Waiting(it.Key)
		}
		if n >= size {
			return true
		}
	}
	return false
}

// admit takes one delivery from the sink's rate; false if none may begin now.
func (d *Dispatcher) admit(now time.Time) bool {
	n, until := d.rate.Admit(1, now)
	if n == 0 {
		d.lookAt(until)
	}
	return n > 0
}

// chain adds the items of the same key behind the last item of a batch.
func (d *Dispatcher) chain(c *call, size int, now time.Time) {
	last := c.items[len(c.items)-1]
	keys := last.lane.keys
	for keys.Waiting(last.Key) > 0 && len(c.items) < size && d.admit(now) {
		next, _ := keys.Pop(last.Key)
		_, judged := last.lane.verdicts[next.ref()]
		if _, waits := d.waits(next, now); waits || judged {
			keys.Unpop(last.Key, next)
			return
		}
		d.queue.Join(next, d.groupOf(next))
		c.add(next)
		last.chained = true
		last = next
	}
}

// follows reports whether item i must wait for the one before it.
func (c *call) follows(i int) bool { return c.items[i-1].chained }

func (c *call) add(it *item) {
	c.items = append(c.items, it)
	if it.unit != nil {
		c.deliveries = it.unit.deliveries(it, c.deliveries)
		return
	}
	c.deliveries = append(c.deliveries, &it.Delivery)
}

// begin begins a call with the items it was filled with.
func (d *Dispatcher) begin(c *call, now time.Time) {
	c.probe = d.breaker.IsOpen()
	d.breaker.Begin()
	d.calls++
	d.inFlight += len(c.items)
	c.sortByLane()
	for _, it := range c.items {
		it.Attempt++
		it.lane.inFlight++
		c.probe = d.beginAt(it, now) || c.probe
	}
	c.began, c.batcher = now, d.caller.Batcher
	d.govern(c)
	c.ctx, c.release = callContext(c.items, now, d.settings.Timeout)
	d.watchCalls(now)
}

// makeCall makes a call, in a span if there is tracing.
func (d *Dispatcher) makeCall(c *call) {
	if d.tracing == nil {
		d.callSink(c.ctx, c, nil)
		return
	}
	var traced tracing.Call
	if c.probe {
		traced = d.tracing.Unspanned(c.ctx, c.deliveries)
	} else {
		traced = d.tracing.Begin(c.ctx, c.deliveries, c.began)
	}
	d.callSink(traced.Context, c, traced.Seen)
	if c.probe && !stillDown(c.results) {
		traced = d.tracing.Begin(c.ctx, c.deliveries, c.began)
	}
	c.span = traced.Span
	traced.End(func(i int) error {
		if err := c.results[i].Err; !errors.Is(err, caller.ErrPassesBy) {
			return err
		}
		return nil
	})
}

// stillDown reports that a probe found the sink still down. Such a probe gets no span, or an
// outage would fill the traces with them.
func stillDown(results []sinks.Result) bool {
	class, _ := sinks.Classify(results[0].Err)
	return results[0].Err != nil && (class == sinks.ClassUnavailable || class == sinks.ClassThrottled || class == sinks.ClassCancelled)
}

// callSink calls the sink and sets the results, with receipts as short as answer_bytes has them.
func (d *Dispatcher) callSink(ctx context.Context, c *call, seen caller.Seen) {
	d.callParts(ctx, c, seen)
	for i := range c.results {
		c.results[i].Receipt = c.results[i].Receipt.Cut(d.caller.AnswerBytes)
	}
}

// callParts calls the sink; for lanes with ledgers, once for each lane.
func (d *Dispatcher) callParts(ctx context.Context, c *call, seen caller.Seen) {
	if it := c.items[0]; it.unit != nil {
		to := c.batcher
		if it.lane.ledger != nil {
			to = it.lane.ledger // of a sink that collected before
		}
		c.results = d.caller.Collect(ctx, to, sinks.Collection{Sink: d.name, ID: it.ID, Group: it.unit.ref.Group, Attempt: it.Attempt, Members: c.deliveries}, seen)
		return
	}
	if !c.inLedgers {
		c.results = d.caller.Call(ctx, c.batcher, c.deliveries, c.follows, c.results, seen)
		return
	}
	c.results = append(c.results, make([]sinks.Result, len(c.items))...)
	var lanes sync.WaitGroup
	for from, to := 0, 0; from < len(c.items); from = to {
		ledger := c.items[from].lane.ledger
		for to < len(c.items) && c.items[to].lane == c.items[from].lane {
			to++
		}
		first, part, results := from, c.deliveries[from:to], c.results[from:to]
		lanes.Go(func() {
			follows := func(i int) bool { return c.follows(first + i) }
			copy(results, d.caller.Call(ctx, ledger, part, follows, nil, seen))
		})
	}
	lanes.Wait()
}

// judge ends the turn of each item of a call by its result, or puts it back.
func (d *Dispatcher) judge(c *call, now time.Time) {
	d.inFlight -= len(c.items)
	d.learn(c, now)
	for i, it := range c.items {
		if it == nil {
			continue // it was put back after a failed one
		}
		d.queue.Done(it)
		it.lane.returned(1)
		d.endAt(it, now)
		if it.unit != nil {
			c.results[0] = it.unit.judge(c.results)
		}
		switch result := c.results[i]; {
		case it.lane.ledger != nil && d.giveUpIfAborted(c.logged(), it, result.Err):
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
				d.unchain(c, i, now)
			}
			d.failed(newFailure(c, it, result.Err, now))
		}
	}
	for _, it := range slices.Backward(c.back) {
		d.enqueue(it, true)
	}
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
func (d *Dispatcher) unchain(c *call, failed int, now time.Time) {
	it := c.items[failed]
	it.chained = false
	for i := len(c.items) - 1; i > failed; i-- {
		behind := c.items[i]
		switch {
		case behind == nil || behind.loose || behind.lane != it.lane || behind.Key != it.Key:
		case c.results[i].Err == nil:
			behind.chained = true // so that its end does not advance its key
		default:
			c.items[i] = nil
			d.queue.Done(behind)
			d.endAt(behind, now)
			behind.lane.returned(1)
			behind.Attempt--
			behind.chained = false
			it.lane.keys.Unpop(it.Key, behind)
		}
	}
}

// watchCalls looks soon for calls that do not return.
func (d *Dispatcher) watchCalls(now time.Time) {
	if d.watch.at.IsZero() {
		d.watch.set(now.Add(d.settings.Timeout / 4))
	}
}

// abandonLate judges as failed the deliveries of calls that have not returned long after their
// deadline. Such a call keeps its slot until it returns: the sink may still be working on it.
func (d *Dispatcher) abandonLate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watch.rang()
	for _, c := range d.workers {
		if c.abandoned || c.ctx == nil {
			continue
		}
		if deadline, ok := c.ctx.Deadline(); !ok || time.Since(deadline) < AbandonAfter {
			continue
		}
		c.abandoned = true
		d.stuck++
		d.log.Error("the sink ignores its deadline: the call is abandoned and keeps its slot",
			"type", c.deliveries[0].Type, "id", c.deliveries[0].ID, "deliveries", len(c.deliveries), "abandoned", d.stuck)
		late := &call{ctx: c.ctx, began: c.began, probe: c.probe, governor: c.governor, destination: c.destination, results: sinks.Failed(c.deliveries, ErrAbandoned)}
		for _, it := range c.items {
			copied := *it // the sink still reads the original
			late.items = append(late.items, &copied)
		}
		d.judge(late, time.Now())
		if d.stuck >= d.settings.Parallelism.Most() {
			d.log.Error("abandoned calls take all slots of the sink: nothing is delivered until one returns", "abandoned", d.stuck)
		}
		d.wakeWorker() // items may have been put back
	}
	if d.calls > d.stuck && !d.stopping {
		d.watchCalls(time.Now())
	}
}
