package dispatch

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/fairqueue"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// call is a worker's call of the sink.
type call struct {
	items      []*item // empty: the worker is idle
	deliveries []*notification.Delivery
	results    []sinks.Result
	ctx        context.Context
	began      time.Time
	release    func()          // releases ctx; may be nil
	abandoned  bool            // it did not return in time, and its items are settled
	probe      bool            // it tests whether a sink or destination is available again
	span       context.Context // for log lines; nil without tracing

	inLedgers bool // the items' lanes have ledgers

	governor    *policy.Governor // nil: none
	destination string           // the governor's destination
}

// end resets a call for the next one.
func (c *call) end() {
	if c.release != nil {
		c.release()
	}
	clear(c.items)
	clear(c.deliveries)
	clear(c.results)
	*c = call{items: c.items[:0], deliveries: c.deliveries[:0], results: c.results[:0]}
}

// fill fills a call with items that may go now; false if there are none.
func (d *Dispatcher) fill(c *call, now time.Time) bool {
	if d.queue.Len() == 0 {
		for l := range d.lanes {
			if l.full {
				l.look() // the reader may spill a hot key
			}
		}
		return false
	}
	threshold := d.settings.Parallelism.Most()
	limit := d.breaker.Limit(d.limit(), now)
	if limit == 0 {
		d.lookAt(d.breaker.Next())
	}
	if d.calls >= threshold || d.calls-d.stuck >= limit {
		return false
	}
	size := d.batch.Size
	if d.breaker.IsOpen() {
		size = 1 // one is enough for a probe
	} else if filled := d.since.Add(d.batch.Wait); d.batch.Wait > 0 && now.Before(filled) && !d.fills(size, now) {
		d.lookAt(filled)
		return false
	}
	postponed, admitted := 0, false // admitted: the rate has admitted an item that is not added yet
	for len(c.items) < size {
		from, ok := d.queue.Next(limit * size)
		if !ok || d.fillsItsShare(from, limit*size) || !admitted && !d.admitted(now) {
			break
		}
		admitted = true
		it := d.pop(from)
		if it.lane.ends(now) {
			d.queue.Done(it)
			d.pending--
			continue
		}
		if it.lane.verdicts != nil && d.settledByVerdict(it) {
			continue
		}
		if d.postpones(it, now) {
			if postponed++; postponed == maxPostponements {
				d.lookAt(now) // releases the lock for others
				break
			}
			continue
		}
		admitted = false
		c.add(it)
		if d.batch.Ordered && size > 1 && it.Key != "" {
			d.chain(c, size, now)
		}
	}
	if len(c.items) == 0 {
		return false
	}
	d.since = now
	d.begin(c, now)
	return true
}

// pop returns the next item to go; while the breaker is open, the best probe.
func (d *Dispatcher) pop(from fairqueue.Origin) *item {
	if d.breaker.IsOpen() {
		return d.queue.PopPreferred(d.tried.prefers)
	}
	return d.queue.Pop(from)
}

// fillsItsShare reports whether a destination already has as many slots as are left free, so
// that a slow one leaves some to others. It does not apply if the sink names no destinations.
func (d *Dispatcher) fillsItsShare(from fairqueue.Origin, slots int) bool {
	if d.caller.Addresser == nil || d.settings.Fairness != "" {
		return false
	}
	destination, n := d.queue.Group(from)
	return destination != "" && n > 0 && n >= slots-d.inFlight
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
		if it.Key != "" {
			n += it.lane.keys.Waiting(it.Key)
		}
		if n >= size {
			return true
		}
	}
	return false
}

// admitted reports whether the sink's rate lets one more delivery begin now.
func (d *Dispatcher) admitted(now time.Time) bool {
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
	for keys.Waiting(last.Key) > 0 && len(c.items) < size && d.admitted(now) {
		next, _ := keys.Pop(last.Key)
		if _, judged := last.lane.verdicts[next.ref()]; judged {
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
		c.probe = d.probes(it) || c.probe
	}
	c.began = now
	d.govern(c)
	c.ctx, c.release = callContext(c.items, now, d.settings.Timeout)
	if !d.watching {
		d.watching = true
		d.watch.Reset(d.settings.Timeout / 4)
	}
}

// abandonLate settles as failed the deliveries of calls that have not returned long after their
// deadline. Such a call keeps its slot until it returns: the sink may still be working on it.
func (d *Dispatcher) abandonLate() {
	d.mu.Lock()
	defer d.mu.Unlock()
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
		d.settle(late)
		if d.stuck >= d.settings.Parallelism.Most() {
			d.log.Error("abandoned calls take all slots of the sink: nothing is delivered until one returns", "abandoned", d.stuck)
		}
		d.wakeWorker() // items may have been put back
	}
	d.watching = d.calls > d.stuck && !d.stopping
	if d.watching {
		d.watch.Reset(d.settings.Timeout / 4)
	}
}
