package forwarder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// courier makes the deliveries to one sink. The lanes of the sink hand it items
// that may go now; up to the threshold of workers take them, deliver them, and
// tell the item's lane what came of it.
//
// Its mutex guards the courier and the delivery state of its lanes: taking an
// item and settling the one before it are one critical section.
type courier struct {
	name        string
	log         *slog.Logger
	destination sinks.Sink
	deliver     func(ctx context.Context, d *notification.Delivery) (notification.Receipt, error)
	middleware  bool // it is within deliver
	hooks       Hooks
	batcher     sinks.Batcher // nil: one at a time
	opened      bool          // by Run, which alone uses it

	mu       sync.Mutex
	sink     Sink
	retries  retries
	batch    sinks.BatchLimits
	lanes    map[*lane]bool // those that are worked on
	turns    turns          // items that may go now: at most one for each key
	pending  int            // items handed over and not settled
	inFlight int            // of these, in the sink's hands
	calls    int            // of the sink, under way
	stuck    int            // of these, abandoned
	crew     []*call        // one for each worker; workers are started as they are needed
	idle     int            // workers that wait for work
	ended    int            // workers that are gone
	work     *sync.Cond     // signalled when a worker may have something to do
	drained  *sync.Cond     // signalled when a lane's inFlight falls to 0, or a worker ends
	gate     gate
	rate     *limiter
	back     []*item     // put back by what is being settled, the first one first
	since    time.Time   // when something began to wait for a batch to fill
	again    *time.Timer // wakes the workers
	againAt  time.Time   // then; zero: never
	watch    *time.Timer // looks for calls that do not come back; armed while there are calls
	watching bool
	stopping bool
	stats    Stats
}

func newCourier(name string, sink Sink, log *slog.Logger) *courier {
	c := &courier{
		name: name, log: log.With("sink", name), destination: sink.Sink, deliver: sink.Sink.Deliver, hooks: sink.Hooks, sink: sink,
		retries: newRetries(sink.Retry), gate: newGate(sink.Breaker), rate: newLimiter(sink.Rate),
		lanes: make(map[*lane]bool), turns: newTurns(), batch: sinks.BatchLimits{Size: 1},
	}
	if len(sink.Middleware) > 0 {
		c.deliver, c.middleware = throughMiddleware(sink.Sink, sink.Middleware), true
	}
	c.work = sync.NewCond(&c.mu)
	c.drained = sync.NewCond(&c.mu)
	c.again = time.AfterFunc(time.Hour, c.lookAgain)
	c.again.Stop()
	c.watch = time.AfterFunc(time.Hour, c.abandonLate)
	c.watch.Stop()
	return c
}

// open prepares the sink, once, before anything is delivered.
func (c *courier) open(ctx context.Context) error {
	if o, ok := c.destination.(sinks.Opener); ok {
		if err := o.Open(ctx); err != nil {
			return fmt.Errorf("open sink %s: %w", c.name, err)
		}
	}
	c.opened = true
	batcher, ok := c.destination.(sinks.Batcher)
	if !ok || c.middleware {
		return nil
	}
	limits := batcher.BatchLimits()
	if limits.Wait < 0 || limits.Size > maxBatch {
		return fmt.Errorf("%w: sink %s asks for batches of %d that wait %s: use 1 to %d, and 0 or more", ErrConfig, c.name, limits.Size, limits.Wait, maxBatch)
	}
	if limits.Size > 1 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.batcher, c.batch = batcher, limits
	}
	return nil
}

// maxBatch bounds a batch: what waits for one is in memory.
const maxBatch = windowRows

// item is one delivery in the engine's hands.
type item struct {
	notification.Delivery
	lane *lane

	// page and index are the item's place in the lane's window; page is nil for
	// one that comes from the parked table.
	page  *page
	index int

	// holds says that the item is counted in its key's parked: later ones of the
	// key are parked behind it.
	holds bool
	// uncounted says that it may be missing in that count: a person put it back,
	// with no attempt spent, and the keys were not compared since.
	uncounted bool
	next      *item // the one behind it in its key's queue
	// chained says that the next one of its key is in the same batch.
	chained bool
	group   *group // with which it shares the sink
}

// call is one call of the sink, in a worker's hands.
type call struct {
	items      []*item // none: the worker has nothing to do
	deliveries []*notification.Delivery
	results    []sinks.Result
	ctx        context.Context
	release    func() // nil, or what the context holds
	abandoned  bool   // it did not come back in time, and its items are settled
}

// offer hands an item over that may go now. The mutex is held.
func (c *courier) offer(it *item) {
	if c.turns.len() == 0 && c.batch.Wait > 0 {
		c.since = time.Now()
	}
	c.turns.push(it, c.groupOf(it), false)
	c.rouse()
}

// behind takes note that one more item waits behind the head of its key. The mutex is
// held.
func (c *courier) behind() {
	c.pending++
	if c.batch.Ordered && c.batch.Wait > 0 {
		c.rouse() // it may fill a batch
	}
}

// groupOf names with whom an item shares the sink's slots.
func (c *courier) groupOf(it *item) string {
	if c.sink.Fairness == "" {
		return ""
	}
	return it.Metadata[c.sink.Fairness]
}

// rouse sees to it that somebody works on what is ready. The mutex is held.
func (c *courier) rouse() {
	switch workers := len(c.crew); {
	case c.idle > 0:
		c.work.Signal()
	case workers < c.sink.Parallelism.Threshold && workers < c.calls+c.turns.len():
		worker := &call{}
		c.crew = append(c.crew, worker)
		go c.run(worker)
	}
}

// run is one worker: it ends when the courier stops.
func (c *courier) run(worker *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.take(worker) {
		c.mu.Unlock()
		c.perform(worker)
		c.mu.Lock()
		c.calls--
		if worker.abandoned {
			c.stuck--
		} else {
			c.settle(worker)
		}
		worker.end()
	}
	c.ended++
	c.drained.Broadcast()
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

// take waits for something that may go; false when the courier stops.
func (c *courier) take(worker *call) bool {
	for !c.stopping {
		if c.fill(worker) {
			if c.turns.len() > 0 {
				c.rouse() // one worker at a time wakes the next, as far as there is work
			}
			return true
		}
		c.idle++
		c.work.Wait()
		c.idle--
	}
	return false
}

// fill gives a worker what may go now; false if nothing may.
func (c *courier) fill(worker *call) bool {
	if c.turns.len() == 0 {
		for l := range c.lanes {
			l.starve()
		}
		return false
	}
	now := time.Now()
	threshold := c.sink.Parallelism.Threshold
	limit := threshold
	if c.sink.Parallelism.Above == AboveSequential && c.pending > threshold {
		limit = 1
	}
	limit = c.gate.limit(limit, now)
	if limit == 0 {
		c.lookAt(c.gate.reopens())
	}
	if c.calls >= threshold || c.calls-c.stuck >= limit {
		return false
	}
	size := c.batch.Size
	if !c.gate.open() {
		size = 1 // to find out, one is enough
	} else if filled := c.since.Add(c.batch.Wait); c.batch.Wait > 0 && now.Before(filled) && !c.fills(size, now) {
		c.lookAt(filled)
		return false
	}
	for len(worker.items) < size {
		from := c.turns.next(limit * size)
		if from == nil || !c.admitted(now) {
			break
		}
		it := c.turns.pop(from)
		if it.lane.ends(now) {
			c.turns.done(it)
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
	if !c.rate.has(size, now) {
		return false
	}
	n := c.turns.len()
	if n >= size || !c.batch.Ordered || c.pending-c.inFlight < size {
		return n >= size
	}
	for it := range c.turns.all() {
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
	n, until := c.rate.admit(1, now)
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
		c.turns.join(next, c.groupOf(next))
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
	c.gate.starts()
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
	if c.batcher != nil {
		worker.results = c.batcher.DeliverBatch(worker.ctx, worker.deliveries)
		return
	}
	receipt, err := c.deliver(worker.ctx, worker.deliveries[0])
	worker.results = append(worker.results, sinks.Result{Receipt: receipt, Err: err})
}

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
		c.turns.done(it)
		it.lane.ended(1)
		switch result := worker.results[i]; {
		case it.lane.over:
			c.pending--
		case result.Err == nil:
			c.delivered(it, result.Receipt)
		default:
			if it.chained {
				c.unchain(worker, i)
			}
			c.failed(it, result.Err, worker.ctx)
		}
	}
	for _, it := range slices.Backward(c.back) {
		c.turns.push(it, c.groupOf(it), true)
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
			c.turns.done(behind)
			behind.lane.ended(1)
			behind.Attempt--
			behind.chained = false
			k.pushFront(behind)
		}
	}
}

func (c *courier) delivered(it *item, receipt notification.Receipt) {
	if c.gate.delivered() {
		c.available()
	}
	c.pending--
	c.stats.Delivered++
	it.lane.delivered(it, receipt)
}

// failed settles an item that was not delivered by the class of its error, or puts
// it back.
func (c *courier) failed(it *item, err error, ctx context.Context) {
	now := time.Now()
	class, until := sinks.Classify(err)
	if errors.Is(err, context.Canceled) && errors.Is(ctx.Err(), context.Canceled) {
		class = sinks.ClassCancelled // whatever the sink made of it
	} else if class == sinks.ClassCancelled {
		class = sinks.ClassTransient // nobody here cancelled it
	}
	switch class {
	case sinks.ClassPermanent:
		if c.gate.delivered() {
			c.available()
		}
		c.dead(it, err)
	case sinks.ClassThrottled:
		c.putBack(it, true)
		if c.gate.wait(later(until, now.Add(leastThrottle)), now) {
			c.log.Warn("sink is throttled, its deliveries wait", "error", err)
		}
	case sinks.ClassUnavailable:
		c.unavailable(it, err, now)
	case sinks.ClassCancelled:
		c.putBack(it, true)
	default:
		if c.gate.unreached() && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrAbandoned)) {
			c.unavailable(it, err, now) // nobody answered a probe
			return
		}
		c.transient(it, err, now)
	}
}

// unavailable puts an item back whose destination could not be reached.
func (c *courier) unavailable(it *item, err error, now time.Time) {
	c.putBack(it, false) // the next probe is another one: this one's destination may be its own
	if c.gate.unavailable(now, err) {
		c.log.Error("sink is unavailable, its deliveries wait", "error", err)
	}
}

// transient settles an item that failed for the moment.
func (c *courier) transient(it *item, err error, now time.Time) {
	if c.gate.answered() {
		c.available()
	}
	key := it.Key
	if key == "" {
		key = it.ID
	}
	spent, began := c.gate.failure(now, key, err)
	if began {
		c.log.Error("nearly all deliveries to the sink fail, they wait", "error", err)
	}
	c.stats.Failed++
	if !spent {
		c.putBack(it, false) // another one may fare better
		return
	}
	policy := c.retries.of(it.Type)
	pause := policy.pause(it.Attempt)
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
		c.turns.push(it, c.groupOf(it), false)
	}
}

// available says that an outage is over.
func (c *courier) available() {
	c.log.Info("sink is available again")
	c.work.Broadcast()
}

// lookAt has the workers look again at a time.
func (c *courier) lookAt(at time.Time) {
	if c.againAt.IsZero() || at.Before(c.againAt) {
		c.againAt = at
		c.again.Reset(max(0, time.Until(at)))
	}
}

func (c *courier) lookAgain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.againAt = time.Time{}
	c.work.Broadcast()
}

// leastThrottle is how long a sink waits at least when it asks to be waited for.
const leastThrottle = 100 * time.Millisecond

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

// adjust takes over settings, whatever is under way. The mutex is held.
func (c *courier) adjust(s Sink) {
	if s.Breaker != c.sink.Breaker {
		throttled := c.gate.throttled
		c.gate = newGate(s.Breaker)
		c.gate.throttled = throttled
	}
	if s.Rate != c.sink.Rate {
		c.rate = newLimiter(s.Rate)
	}
	regroup := s.Fairness != c.sink.Fairness
	c.sink, c.retries = s, newRetries(s.Retry)
	if regroup {
		c.turns.regroup(c.groupOf)
	}
	c.shareRate()
	c.work.Broadcast()
	c.rouse()
}

// join and part tell of the lanes of the sink that are worked on. The mutex is held.
func (c *courier) join(l *lane) {
	c.lanes[l] = true
	c.shareRate()
}

func (c *courier) part(l *lane) {
	delete(c.lanes, l)
	c.shareRate()
}

// shareRate takes the part of the sink's rate that the lanes are of the sink.
func (c *courier) shareRate() {
	slots := 0
	for l := range c.lanes {
		slots += l.lease.Lane.Slots.Last - l.lease.Lane.Slots.First + 1
	}
	c.rate.share(float64(slots)/store.Slots, time.Now())
}

// stop ends the workers once the lanes are over. One that is still in the hands of
// a sink that does not heed its context is left behind.
func (c *courier) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping = true
	c.again.Stop()
	c.watch.Stop()
	c.work.Broadcast()
	for len(c.crew)-c.ended > c.calls {
		c.drained.Wait()
	}
}

// later is the later one of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
