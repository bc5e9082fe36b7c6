// Package dispatch hands deliveries to a sink, up to a threshold at once, and reports
// to the lanes of the sink what came of them.
//
// A Dispatcher is one sink's; a Lane is the dispatch half of one leased lane. They share
// the only mutex of the hot path: taking an item and settling the one before it are one
// critical section. The settle half of a lane (package settle) has no lock: it is
// signalled by Lane.Dirty, takes the outcome with Lane.Take, and hands back with the
// Resume methods what was parked.
//
// The files in the order in which to read them: dispatcher.go, item.go, lane.go, call.go,
// trace.go, result.go, destination.go, governing.go, outcome.go, closing.go, rounds.go, deadline.go.
package dispatch

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/budget"
	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/forwarder/internal/fairqueue"
	"github.com/waybill-go/waybill/framework/forwarder/internal/memory"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/tracing"
	"github.com/waybill-go/waybill/sinks"
)

// Config is what a dispatcher works with. All of it is required but Observer and Tracing.
type Config struct {
	Sink   string
	Caller *caller.Caller
	// TypeOf is the present name of a type.
	TypeOf   func(name string) string
	Settings policy.Settings
	Budget   *budget.Budget
	Observer policy.Observer     // nil: none
	Tracing  *tracing.Deliveries // nil: none
	Logger   *slog.Logger
}

// Dispatcher makes the deliveries to one sink. It is safe for concurrent use.
type Dispatcher struct {
	name     string
	log      *slog.Logger
	caller   *caller.Caller
	typeOf   func(name string) string
	budget   *budget.Budget
	observer policy.Observer
	tracing  *tracing.Deliveries

	mu           sync.Mutex
	settings     policy.Settings
	batch        sinks.BatchLimits
	lanes        map[*Lane]bool          // those that are worked on
	memories     memory.Lanes            // of what lanes that were lost have left
	verdicts     map[int]verdicts        // by lane: what the destination's transactions were aborted for
	queue        *fairqueue.Queue[*item] // items that may go now: at most one of each key
	pending      int                     // items handed over and not settled
	inFlight     int                     // of these, in the sink's hands
	calls        int                     // of the sink, under way
	stuck        int                     // of these, abandoned
	workers      []*call                 // one for each worker; workers are started as they are needed
	idle         int                     // workers that wait for work
	ended        int                     // workers that are gone
	work         *sync.Cond              // signalled when a worker may have something to do
	drained      *sync.Cond              // signalled when a lane's inFlight falls to 0, or a worker ends
	breaker      *policy.Circuit
	destinations map[string]*destination     // those of the sink that do not go well
	governors    map[string]*policy.Governor // of an adaptive parallelism: one of the sink, or of each destination
	rate         *policy.Limiter
	databases    int             // of the fleet; 0: there is none
	forwarders   int             // of the fleet
	settling     context.Context // for log lines: with the span of the call that is settled; nil: there is none
	back         []*item         // put back by what is being settled, the first one first
	since        time.Time       // when something began to wait for a batch to fill
	again        *time.Timer     // wakes the workers
	againAt      time.Time       // then; zero: never
	watch        *time.Timer     // looks for calls that do not come back; armed while there are calls
	watching     bool
	stopping     bool
	stats        Stats
}

// Stats counts what was done for a sink.
type Stats struct {
	Sink      string
	Delivered int64 // deliveries that the sink took
	Failed    int64 // attempts that failed for the moment
	Dead      int64 // deliveries given up
	PassedBy  int64 // notifications that no condition of their routes brought to the sink
	Pending   int   // in memory and not settled
	InFlight  int   // of these, in the sink's hands
	// Abandoned are calls of the sink that did not come back after their deadline
	// and keep a slot of the threshold each.
	Abandoned int
}

// New returns a dispatcher. It starts nothing: workers start as there is work for them.
func New(c Config) *Dispatcher {
	d := &Dispatcher{
		name: c.Sink, log: c.Logger.With("sink", c.Sink), caller: c.Caller, typeOf: c.TypeOf, budget: c.Budget, observer: c.Observer, tracing: c.Tracing,
		settings: c.Settings, breaker: policy.NewCircuit(c.Settings.Breaker), rate: policy.NewLimiter(c.Settings.Rate),
		lanes: make(map[*Lane]bool), destinations: make(map[string]*destination), governors: make(map[string]*policy.Governor), queue: fairqueue.New[*item](), batch: sinks.BatchLimits{Size: 1},
	}
	d.work = sync.NewCond(&d.mu)
	d.drained = sync.NewCond(&d.mu)
	d.again = time.AfterFunc(time.Hour, d.lookAgain)
	d.again.Stop()
	d.watch = time.AfterFunc(time.Hour, d.abandonLate)
	d.watch.Stop()
	return d
}

// UseBatches makes the dispatcher deliver in batches. It is called before the first
// delivery.
func (d *Dispatcher) UseBatches(batcher sinks.Batcher, limits sinks.BatchLimits) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.caller.Batcher, d.batch = batcher, limits
}

// Name is the sink's.
func (d *Dispatcher) Name() string { return d.name }

// LogOf is the sink's logger for one of several databases; "" where there is one.
func (d *Dispatcher) LogOf(database string) *slog.Logger {
	if database == "" {
		return d.log
	}
	return d.log.With("database", database)
}

// Stats reports what was done.
func (d *Dispatcher) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.Sink, s.Pending, s.InFlight, s.Abandoned = d.name, d.pending, d.inFlight, d.stuck
	return s
}

// Figures are what a sink does at one moment.
type Figures struct {
	Sink      string
	Threshold int // most deliveries, or batches, in flight; what an adaptive one is now
	InFlight  int // deliveries in the sink's hands
	Pending   int // deliveries in memory and not settled, those in flight included
	// Abandoned are calls of the sink that did not come back after their deadline and
	// keep a slot of the threshold each.
	Abandoned   int
	BreakerOpen bool // the sink's own; those of its destinations are not meant
	// ThrottledUntil is when the sink's own throttling ends; zero: it is not throttled.
	ThrottledUntil time.Time
}

// Figures reports what the sink does now.
func (d *Dispatcher) Figures() Figures {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := Figures{Sink: d.name, Threshold: d.threshold(), InFlight: d.inFlight, Pending: d.pending,
		Abandoned: d.stuck, BreakerOpen: d.breaker.IsOpen()}
	if until := d.breaker.ThrottledUntil(); until.After(time.Now()) {
		f.ThrottledUntil = until.UTC()
	}
	return f
}

// State is what holds up the sink's deliveries, for people to see.
func (d *Dispatcher) State() store.SinkState {
	d.mu.Lock()
	defer d.mu.Unlock()
	var s store.SinkState
	if d.breaker.IsOpen() {
		s.BreakerOpen, s.OpenSince = true, d.breaker.OpenSince().UTC()
		if cause := d.breaker.Cause(); cause != nil {
			s.Cause = policy.Text(cause.Error(), maxErrorText)
		}
	}
	if until := d.breaker.ThrottledUntil(); until.After(time.Now()) {
		s.ThrottledUntil = until.UTC()
		if cause := d.breaker.ThrottledBy(); cause != nil && s.Cause == "" {
			s.Cause = policy.Text(cause.Error(), maxErrorText)
		}
	}
	s.Destinations, s.AllDestinations = d.states(time.Now())
	return s
}

// Settings returns the settings as they are.
func (d *Dispatcher) Settings() policy.Settings {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.settings
}

// Adjust takes over settings, whatever is under way.
func (d *Dispatcher) Adjust(s policy.Settings) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.Breaker != d.settings.Breaker {
		d.breaker.Adjust(s.Breaker)
		for _, known := range d.destinations {
			known.circuit.Adjust(s.Breaker)
		}
	}
	if s.Rate != d.settings.Rate {
		d.rate = policy.NewLimiter(s.Rate)
	}
	before := d.settings
	regroup := s.Fairness != before.Fairness
	d.settings = s
	d.regovern(before)
	if regroup {
		d.queue.Regroup(d.groupOf, func(a, b *item) int { return cmp.Compare(a.Offset, b.Offset) })
	}
	d.shareRate()
	d.work.Broadcast()
	d.rouse()
}

// Retain keeps what is remembered of some lanes, and of no others.
func (d *Dispatcher) Retain(lane func(store.Lane) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.memories.Retain(lane)
}

// offer hands an item over that may go now.
func (d *Dispatcher) offer(it *item) {
	if it.lane.suspended {
		it.lane.aside = append(it.lane.aside, it)
		return
	}
	if d.queue.Len() == 0 && d.batch.Wait > 0 {
		d.since = time.Now()
	}
	d.queue.Push(it, d.groupOf(it), false)
	d.rouse()
}

// behind takes note that one more item waits behind the head of its key.
func (d *Dispatcher) behind() {
	d.pending++
	if d.batch.Ordered && d.batch.Wait > 0 {
		d.rouse() // it may fill a batch
	}
}

// groupOf names the group in which an item shares the sink's slots.
func (d *Dispatcher) groupOf(it *item) string {
	if d.settings.Fairness == "" {
		return it.destination
	}
	return it.Metadata[d.settings.Fairness]
}

// rouse sees to it that a worker works on what is ready.
func (d *Dispatcher) rouse() {
	switch workers := len(d.workers); {
	case d.idle > 0:
		d.work.Signal()
	case workers < d.settings.Parallelism.Most() && workers < d.calls+d.queue.Len():
		worker := &call{}
		d.workers = append(d.workers, worker)
		go d.run(worker)
	}
}

// run is one worker: it ends when the dispatcher stops.
func (d *Dispatcher) run(worker *call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for now := time.Now(); d.next(worker, now); {
		d.mu.Unlock()
		d.deliver(worker)
		d.mu.Lock()
		now = time.Now() // with the lock: what waited for it longer than a lease lasts must not begin
		d.observe(worker, now)
		d.calls--
		if worker.abandoned {
			d.stuck--
		} else {
			d.settle(worker)
		}
		worker.end()
	}
	d.ended++
	d.drained.Broadcast()
}

// next waits for something that may go; false when the dispatcher stops.
func (d *Dispatcher) next(worker *call, now time.Time) bool {
	for !d.stopping {
		if d.fill(worker, now) {
			if d.queue.Len() > 0 {
				d.rouse() // one worker at a time wakes the next, as far as there is work
			}
			return true
		}
		d.idle++
		d.work.Wait()
		d.idle--
		now = time.Now()
	}
	return false
}

// lookAt makes the workers look again at a time.
func (d *Dispatcher) lookAt(at time.Time) {
	if d.againAt.IsZero() || at.Before(d.againAt) {
		d.againAt = at
		d.again.Reset(max(0, time.Until(at)))
	}
}

func (d *Dispatcher) lookAgain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.againAt = time.Time{}
	d.work.Broadcast()
}

// Divide says that the sink's rate is shared by a fleet of so many databases, and of so many forwarders;
// 0 and 0: by the lanes of one database alone.
func (d *Dispatcher) Divide(databases, forwarders int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.databases != databases || d.forwarders != forwarders {
		d.databases, d.forwarders = databases, forwarders
		d.shareRate()
		d.work.Broadcast()
	}
}

// shareRate takes the share of the sink's rate that the lanes here are of all lanes
// of the sink. In a fleet of more databases than forwarders, most of which are idle as a rule, that would leave
// most of the rate to databases that do not use it: there each forwarder has the same share.
func (d *Dispatcher) shareRate() {
	slots := 0
	for l := range d.lanes {
		slots += l.lease.Lane.Slots.Last - l.lease.Lane.Slots.First + 1
	}
	part := float64(slots) / store.Slots
	switch {
	case d.databases == 0 || slots == 0:
	case d.forwarders > 0 && d.forwarders <= d.databases:
		part = 1 / float64(d.forwarders)
	default:
		part /= float64(d.databases)
	}
	d.rate.Share(part, time.Now())
}

// Stop ends the workers once the lanes are over. One that is still in the hands of a
// sink that does not heed its context is left behind.
func (d *Dispatcher) Stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopping = true
	d.again.Stop()
	d.watch.Stop()
	d.work.Broadcast()
	for len(d.workers)-d.ended > d.calls {
		d.drained.Wait()
	}
}

// CheckBatch reports batch limits that cannot be kept.
func CheckBatch(sink string, limits sinks.BatchLimits) error {
	if limits.Wait < 0 || limits.Size > WindowRows {
		return fmt.Errorf("sink %s asks for batches of %d that wait %s: use 1 to %d, and 0 or more", sink, limits.Size, limits.Wait, WindowRows)
	}
	return nil
}
