package forwarder

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// call is one call of the sink, in a worker's hands.
type call struct {
	items      []*item // none: the worker has nothing to do
	deliveries []*notification.Delivery
	results    []sinks.Result
	ctx        context.Context
	release    func() // nil, or what the context holds
	abandoned  bool   // it did not come back in time, and its items are settled
}

// end makes a call ready for the next one.
func (w *call) end() {
	if w.release != nil {
		w.release()
	}
	clear(w.items)
	clear(w.deliveries)
	clear(w.results)
	*w = call{items: w.items[:0], deliveries: w.deliveries[:0], results: w.results[:0]}
}

// fill gives a worker what may go now; false if nothing may.
func (c *courier) fill(worker *call) bool {
	if c.turns.Len() == 0 {
		for l := range c.lanes {
			l.starve()
		}
		return false
	}
	now := time.Now()
	threshold := c.sink.Parallelism.Threshold
	limit := c.circuit.Limit(c.sink.Parallelism.Limit(c.pending), now)
	if limit == 0 {
		c.lookAt(c.circuit.Next())
	}
	if c.calls >= threshold || c.calls-c.stuck >= limit {
		return false
	}
	size := c.batch.Size
	if c.circuit.IsOpen() {
		size = 1 // to find out, one is enough
	} else if filled := c.since.Add(c.batch.Wait); c.batch.Wait > 0 && now.Before(filled) && !c.fills(size, now) {
		c.lookAt(filled)
		return false
	}
	for len(worker.items) < size {
		from, ok := c.turns.Next(limit * size)
		if !ok || !c.admitted(now) {
			break
		}
		it := c.turns.Pop(from)
		if it.lane.ends(now) {
			c.turns.Done(it)
			c.pending--
			continue
		}
		worker.add(it)
		if c.batch.Ordered && size > 1 && it.Key != "" {
			c.chain(worker, size, now)
		}
	}
	if len(worker.items) == 0 {
		return false
	}
	c.since = now
	c.begin(worker, now)
	return true
}

// fills says whether what may go now fills a batch.
func (c *courier) fills(size int, now time.Time) bool {
	if !c.rate.Has(size, now) {
		return false
	}
	n := c.turns.Len()
	if n >= size || !c.batch.Ordered || c.pending-c.inFlight < size {
		return n >= size
	}
	for it := range c.turns.All() {
		if it.Key != "" {
			n += it.lane.keys[it.Key].waiting
		}
		if n >= size {
			return true
		}
	}
	return false
}

// admitted says whether the sink's rate lets one more begin now.
func (c *courier) admitted(now time.Time) bool {
	n, until := c.rate.Admit(1, now)
	if n == 0 {
		c.lookAt(until)
	}
	return n > 0
}

// chain adds those that wait behind the last item of a batch.
func (c *courier) chain(worker *call, size int, now time.Time) {
	last := worker.items[len(worker.items)-1]
	k := last.lane.keys[last.Key]
	for k.first != nil && len(worker.items) < size && c.admitted(now) {
		next := k.pop()
		c.turns.Join(next, c.groupOf(next))
		worker.add(next)
		last.chained = true
		last = next
	}
}

func (w *call) add(it *item) {
	w.items = append(w.items, it)
	w.deliveries = append(w.deliveries, &it.Delivery)
}

// begin counts what a worker has as in flight.
func (c *courier) begin(worker *call, now time.Time) {
	c.circuit.Begin()
	c.calls++
	c.inFlight += len(worker.items)
	for _, it := range worker.items {
		it.Attempt++
		it.lane.inFlight++
	}
	worker.ctx, worker.release = callContext(worker.items, now, c.sink.Timeout)
	if !c.watching {
		c.watching = true
		c.watch.Reset(c.sink.Timeout / 4)
	}
}

// perform has the sink deliver. A panic of the sink is an error of these deliveries.
func (c *courier) perform(worker *call) {
	defer func() {
		if p := recover(); p != nil {
			worker.results = sinks.Failed(worker.deliveries, fmt.Errorf("%w: %v\n%s", ErrPanic, p, debug.Stack()))
		}
	}()
	if c.path.Plain() {
		worker.results = c.hand(worker.ctx, worker.deliveries, worker.results)
	} else {
		c.performShaped(worker)
	}
}

// hand hands deliveries to the sink. The results may be in an empty slice that is
// given.
func (c *courier) hand(ctx context.Context, deliveries []*notification.Delivery, results []sinks.Result) []sinks.Result {
	if c.batcher != nil {
		return c.batcher.DeliverBatch(ctx, deliveries)
	}
	receipt, err := c.deliver(ctx, deliveries[0])
	return append(results, sinks.Result{Receipt: receipt, Err: err})
}

// abandonAfter is how long a sink may take to come back once its context is done.
const abandonAfter = 2 * time.Second

// abandonLate settles deliveries whose call has not come back long after its
// deadline as failed. The call keeps its slot until it does: the sink may be at
// work on it.
func (c *courier) abandonLate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, worker := range c.crew {
		if worker.abandoned || worker.ctx == nil {
			continue
		}
		if deadline, ok := worker.ctx.Deadline(); !ok || time.Since(deadline) < abandonAfter {
			continue
		}
		worker.abandoned = true
		c.stuck++
		c.log.Error("sink does not heed its deadline: the call was abandoned and keeps its slot",
			"delivery", worker.deliveries[0], "deliveries", len(worker.deliveries), "abandoned", c.stuck)
		late := &call{ctx: worker.ctx, results: sinks.Failed(worker.deliveries, ErrAbandoned)}
		for _, it := range worker.items {
			copied := *it // the sink still reads the delivery that it was given
			late.items = append(late.items, &copied)
		}
		c.settle(late)
		if c.stuck >= c.sink.Parallelism.Threshold {
			c.log.Error("all slots of the sink are taken by abandoned calls: nothing is delivered until one comes back", "abandoned", c.stuck)
		}
		c.rouse() // there may be something put back
	}
	c.watching = c.calls > c.stuck && !c.stopping
	if c.watching {
		c.watch.Reset(c.sink.Timeout / 4)
	}
}
