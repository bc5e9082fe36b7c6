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
	"github.com/waybill-go/waybill/sinks"
)

// courier makes the deliveries to one sink. The lanes of the sink hand it items
// that may go now; up to the threshold of workers take them, deliver them, and
// tell the item's lane what came of it.
//
// Its mutex guards the courier and the delivery state of its lanes: taking an
// item and settling the one before it are one critical section.
type courier struct {
	name string
	sink Sink
	log  *slog.Logger

	opened bool // by Run, which alone uses it

	mu       sync.Mutex
	ready    queue      // items that may go now: at most one for each key
	pending  int        // items handed over and not settled
	inFlight int        // of these, in the sink's hands
	workers  int        // goroutines, started as they are needed
	idle     int        // workers that wait for work
	work     *sync.Cond // signalled when a worker may have something to do
	drained  *sync.Cond // signalled when a lane's inFlight falls to 0, or a worker ends
	gate     gate
	reopen   *time.Timer // wakes the workers when the gate reopens
	stopping bool
	stats    Stats
}

func newCourier(name string, sink Sink, log *slog.Logger) *courier {
	c := &courier{name: name, sink: sink, log: log.With("sink", name), gate: newGate()}
	c.work = sync.NewCond(&c.mu)
	c.drained = sync.NewCond(&c.mu)
	c.reopen = time.AfterFunc(time.Hour, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if time.Now().Before(c.gate.reopens) {
			c.reopenLater() // the clock was set back meanwhile
		}
		c.work.Broadcast()
	})
	c.reopen.Stop()
	return c
}

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
}

// offer hands an item over that may go now. The mutex is held.
func (c *courier) offer(it *item) {
	c.ready.push(it)
	c.rouse()
}

// rouse sees to it that somebody works on what is ready. The mutex is held.
func (c *courier) rouse() {
	switch {
	case c.idle > 0:
		c.work.Signal()
	case c.workers < c.sink.Parallelism.Threshold && c.workers < c.inFlight+c.ready.len():
		c.workers++
		go c.run()
	}
}

// run is one worker: it ends when the courier stops.
func (c *courier) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		it := c.take()
		if it == nil {
			c.workers--
			c.drained.Broadcast()
			return
		}
		ctx := it.lane.deadlines.context()
		c.mu.Unlock()
		receipt, err := c.deliver(ctx, it)
		c.mu.Lock()
		c.settle(it, receipt, err)
	}
}

// take waits for an item that may go, and returns nil when the courier stops.
func (c *courier) take() *item {
	for {
		if c.stopping {
			return nil
		}
		if c.ready.len() > 0 && c.inFlight < c.limit() {
			it := c.ready.pop()
			if it.lane.ends(time.Now()) {
				c.pending--
				continue
			}
			c.inFlight++
			it.lane.inFlight++
			if c.ready.len() > 0 {
				c.rouse() // one worker at a time wakes the next, as far as there is work
			}
			return it
		}
		c.idle++
		c.work.Wait()
		c.idle--
	}
}

// limit is how many deliveries may be in flight now.
func (c *courier) limit() int {
	n := c.sink.Parallelism.Threshold
	if c.sink.Parallelism.Above == AboveSequential && c.pending > n {
		n = 1
	}
	return c.gate.limit(n, time.Now)
}

// deliver makes one attempt. A panic of the sink is an error of this delivery.
func (c *courier) deliver(ctx context.Context, it *item) (receipt notification.Receipt, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", ErrPanic, p, debug.Stack())
		}
	}()
	it.Attempt++
	return c.sink.Sink.Deliver(ctx, &it.Delivery)
}

// settle ends an item's turn, or puts it back in front.
func (c *courier) settle(it *item, receipt notification.Receipt, err error) {
	l := it.lane
	c.inFlight--
	l.inFlight--
	if l.inFlight == 0 {
		c.drained.Broadcast()
	}
	if l.over {
		c.pending--
		return
	}
	if err == nil {
		c.reached()
		c.pending--
		c.stats.Delivered++
		l.delivered(it, receipt)
		return
	}
	class, until := sinks.Classify(err)
	if l.deadlines.parent.Err() != nil && errors.Is(err, context.Canceled) {
		class = sinks.ClassCancelled // whatever the sink made of it
	} else if class == sinks.ClassCancelled {
		class = sinks.ClassTransient // nobody here cancelled it
	}
	switch class {
	case sinks.ClassPermanent:
		c.reached()
		c.pending--
		c.stats.Dead++
		l.died(it, err)
	case sinks.ClassThrottled:
		c.putBack(it)
		if soonest := time.Now().Add(leastThrottle); until.Before(soonest) {
			until = soonest
		}
		if c.gate.throttled(until) {
			c.log.Warn("sink is throttled, its deliveries wait", "error", err)
		}
		c.reopenLater()
	case sinks.ClassUnavailable:
		c.putBack(it)
		if c.gate.unavailable(time.Now()) {
			c.log.Error("sink is unavailable, its deliveries wait", "error", err)
		}
		c.reopenLater()
	case sinks.ClassCancelled:
		c.putBack(it)
		c.rouse()
	default:
		c.reached()
		c.pending--
		c.stats.Failed++
		if it.Attempt >= c.sink.Retry.MaxAttempts {
			c.stats.Dead++
			l.died(it, err)
			return
		}
		l.failed(it, err, c.sink.Retry.pause(it.Attempt))
	}
}

// putBack undoes an attempt that counts as none.
func (c *courier) putBack(it *item) {
	it.Attempt--
	c.ready.pushFront(it)
}

// reopenLater has the workers look again when the gate reopens.
func (c *courier) reopenLater() {
	c.reopen.Reset(max(0, time.Until(c.gate.reopens)))
}

// reached takes note that the destination answered.
func (c *courier) reached() {
	if c.gate.reached() {
		c.log.Info("sink is available again")
		c.work.Broadcast()
	}
}

// leastThrottle is how long a sink waits at least when it asks to be waited for.
const leastThrottle = 100 * time.Millisecond

// abandonAfter is how long a sink may take to come back once its context is done.
const abandonAfter = 2 * time.Second

// stop ends the workers once the lanes are over. One that is still in the hands of
// a sink that does not heed its context is left behind.
func (c *courier) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping = true
	c.reopen.Stop()
	c.work.Broadcast()
	for c.workers > c.inFlight {
		c.drained.Wait()
	}
}

// queue is a double-ended queue of items.
type queue struct {
	front []*item // in reverse: the last one is the first to go
	back  []*item
	head  int // of back
}

func (q *queue) len() int { return len(q.front) + len(q.back) - q.head }

func (q *queue) push(it *item) { q.back = append(q.back, it) }

func (q *queue) pushFront(it *item) { q.front = append(q.front, it) }

// drop takes out the items of a lane and returns how many there were.
func (q *queue) drop(l *lane) (n int) {
	ofLane := func(it *item) bool { return it.lane == l }
	before := q.len()
	q.front = slices.DeleteFunc(q.front, ofLane)
	q.back = slices.DeleteFunc(q.back[q.head:], ofLane)
	q.head = 0
	return before - q.len()
}

// pop takes the first item; there must be one.
func (q *queue) pop() *item {
	if n := len(q.front); n > 0 {
		it := q.front[n-1]
		q.front[n-1] = nil
		q.front = q.front[:n-1]
		return it
	}
	it := q.back[q.head]
	q.back[q.head] = nil
	q.head++
	if q.head > len(q.back)/2 { // half of it is free: move the rest to the beginning
		n := copy(q.back, q.back[q.head:])
		clear(q.back[n:])
		q.back, q.head = q.back[:n], 0
	}
	return it
}
