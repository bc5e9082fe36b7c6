package dispatch

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/fairqueue"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// call is one call of the sink, in a worker's hands.
type call struct {
	items      []*item // none: the worker has nothing to do
	deliveries []*notification.Delivery
	results    []sinks.Result
	ctx        context.Context
	began      time.Time
	release    func()          // nil, or what the context holds
	abandoned  bool            // it did not come back in time, and its items are settled
	probe      bool            // it is to find out whether what is down is back
	span       context.Context // for log lines; nil without tracing

	inLedgers bool // the items' lanes have ledgers

	governor    *policy.Governor // nil: none
	destination string           // that it governs
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
func (d *Dispatcher) fill(worker *call, now time.Time) bool {
	if d.queue.Len() == 0 {
		for l := range d.lanes {
			if l.full {
				l.look() // there may be a hot key
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
		size = 1 // to find out, one is enough
	} else if filled := d.since.Add(d.batch.Wait); d.batch.Wait > 0 && now.Before(filled) && !d.fills(size, now) {
		d.lookAt(filled)
		return false
	}
	postponed, admitted := 0, false // admitted by the rate, and not used yet
	for len(worker.items) < size {
		from, ok := d.queue.Next(limit * size)
		if !ok || d.fillsItsShare(from, limit*size) || !admitted && !d.admitted(now) {
			break
		}
		admitted = true
		it := d.queue.Pop(from)
		if it.lane.ends(now) {
			d.queue.Done(it)
			d.pending--
			continue
		}
		if it.lane.verdicts != nil && d.isJudged(it) {
			continue
		}
		if d.postpones(it, now) {
			if postponed++; postponed == maxPostponements {
				d.lookAt(now) // others may want the lock
				break
			}
			continue
		}
		admitted = false
		worker.add(it)
		if d.batch.Ordered && size > 1 && it.Key != "" {
			d.chain(worker, size, now)
		}
	}
	if len(worker.items) == 0 {
		return false
	}
	d.since = now
	d.begin(worker, now)
	return true
}

// fillsItsShare says whether a destination has as many slots already as are left free, so
// that one which is slow leaves some to the others. What the sink names no destination of has
// no others.
func (d *Dispatcher) fillsItsShare(from fairqueue.Origin, slots int) bool {
	if d.caller.Addresser == nil || d.settings.Fairness != "" {
		return false
	}
	destination, n := d.queue.Group(from)
	return destination != "" && n > 0 && n >= slots-d.inFlight
}

// fills says whether what may go now fills a batch.
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

// admitted says whether the sink's rate lets one more begin now.
func (d *Dispatcher) admitted(now time.Time) bool {
	n, until := d.rate.Admit(1, now)
	if n == 0 {
		d.lookAt(until)
	}
	return n > 0
}

// chain adds those that wait behind the last item of a batch.
func (d *Dispatcher) chain(worker *call, size int, now time.Time) {
	last := worker.items[len(worker.items)-1]
	keys := last.lane.keys
	for keys.Waiting(last.Key) > 0 && len(worker.items) < size && d.admitted(now) {
		next, _ := keys.Pop(last.Key)
		if _, judged := last.lane.verdicts[next.ref()]; judged {
			keys.Unpop(last.Key, next)
			return
		}
		d.queue.Join(next, d.groupOf(next))
		worker.add(next)
		last.chained = true
		last = next
	}
}

// follows says whether an item waits for the one before it.
func (w *call) follows(i int) bool { return w.items[i-1].chained }

func (w *call) add(it *item) {
	w.items = append(w.items, it)
	w.deliveries = append(w.deliveries, &it.Delivery)
}

// begin counts what a worker has as in flight.
func (d *Dispatcher) begin(worker *call, now time.Time) {
	worker.probe = d.breaker.IsOpen()
	d.breaker.Begin()
	d.calls++
	d.inFlight += len(worker.items)
	worker.sortByLane()
	for _, it := range worker.items {
		it.Attempt++
		it.lane.inFlight++
		worker.probe = d.probes(it) || worker.probe
	}
	worker.began = now
	d.govern(worker)
	worker.ctx, worker.release = callContext(worker.items, now, d.settings.Timeout)
	if !d.watching {
		d.watching = true
		d.watch.Reset(d.settings.Timeout / 4)
	}
}

// abandonLate settles as failed the deliveries whose call has not come back long
// after its deadline. The call keeps its slot until it comes back: the sink may
// still be at work on it.
func (d *Dispatcher) abandonLate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, worker := range d.workers {
		if worker.abandoned || worker.ctx == nil {
			continue
		}
		if deadline, ok := worker.ctx.Deadline(); !ok || time.Since(deadline) < AbandonAfter {
			continue
		}
		worker.abandoned = true
		d.stuck++
		d.log.Error("sink does not heed its deadline: the call was abandoned and keeps its slot",
			"delivery", worker.deliveries[0], "deliveries", len(worker.deliveries), "abandoned", d.stuck)
		late := &call{ctx: worker.ctx, began: worker.began, probe: worker.probe, governor: worker.governor, destination: worker.destination, results: sinks.Failed(worker.deliveries, ErrAbandoned)}
		for _, it := range worker.items {
			copied := *it // the sink still reads the delivery that it was given
			late.items = append(late.items, &copied)
		}
		d.settle(late)
		if d.stuck >= d.settings.Parallelism.Most() {
			d.log.Error("all slots of the sink are taken by abandoned calls: nothing is delivered until one comes back", "abandoned", d.stuck)
		}
		d.rouse() // there may be something put back
	}
	d.watching = d.calls > d.stuck && !d.stopping
	if d.watching {
		d.watch.Reset(d.settings.Timeout / 4)
	}
}
