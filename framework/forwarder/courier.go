package forwarder

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/fairqueue"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
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
	path        *route.Path // to the sink
	destination sinks.Sink
	deliver     func(ctx context.Context, d *notification.Delivery) (notification.Receipt, error)
	middleware  bool // it is within deliver
	hooks       Hooks
	batcher     sinks.Batcher // nil: one at a time
	opened      bool          // by Run, which alone uses it

	mu       sync.Mutex
	sink     Sink
	batch    sinks.BatchLimits
	lanes    map[*lane]bool          // those that are worked on
	turns    *fairqueue.Queue[*item] // items that may go now: at most one for each key
	pending  int                     // items handed over and not settled
	inFlight int                     // of these, in the sink's hands
	calls    int                     // of the sink, under way
	stuck    int                     // of these, abandoned
	crew     []*call                 // one for each worker; workers are started as they are needed
	idle     int                     // workers that wait for work
	ended    int                     // workers that are gone
	work     *sync.Cond              // signalled when a worker may have something to do
	drained  *sync.Cond              // signalled when a lane's inFlight falls to 0, or a worker ends
	circuit  *policy.Circuit
	rate     *policy.Limiter
	back     []*item     // put back by what is being settled, the first one first
	since    time.Time   // when something began to wait for a batch to fill
	again    *time.Timer // wakes the workers
	againAt  time.Time   // then; zero: never
	watch    *time.Timer // looks for calls that do not come back; armed while there are calls
	watching bool
	stopping bool
	stats    Stats
}

func newCourier(name string, sink Sink, path *route.Path, log *slog.Logger) *courier {
	c := &courier{
		name: name, log: log.With("sink", name), path: path, destination: sink.Sink, deliver: sink.Sink.Deliver, hooks: sink.Hooks, sink: sink,
		circuit: policy.NewCircuit(sink.Breaker), rate: policy.NewLimiter(sink.Rate),
		lanes: make(map[*lane]bool), turns: fairqueue.New[*item](), batch: sinks.BatchLimits{Size: 1},
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
	fairqueue.Ticket // from the log, unless page is nil
	lane             *lane

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
}

// offer hands an item over that may go now. The mutex is held.
func (c *courier) offer(it *item) {
	if c.turns.Len() == 0 && c.batch.Wait > 0 {
		c.since = time.Now()
	}
	c.turns.Push(it, c.groupOf(it), false)
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
	case workers < c.sink.Parallelism.Threshold && workers < c.calls+c.turns.Len():
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

// take waits for something that may go; false when the courier stops.
func (c *courier) take(worker *call) bool {
	for !c.stopping {
		if c.fill(worker) {
			if c.turns.Len() > 0 {
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

// adjust takes over settings, whatever is under way. The mutex is held.
func (c *courier) adjust(s Sink) {
	if s.Breaker != c.sink.Breaker {
		c.circuit.Adjust(s.Breaker)
	}
	if s.Rate != c.sink.Rate {
		c.rate = policy.NewLimiter(s.Rate)
	}
	regroup := s.Fairness != c.sink.Fairness
	c.sink = s
	if regroup {
		c.turns.Regroup(c.groupOf, func(a, b *item) int { return cmp.Compare(a.Offset, b.Offset) })
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
	c.rate.Share(float64(slots)/store.Slots, time.Now())
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

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
