// Package dispatch hands deliveries to a sink, up to a threshold at once, and reports their
// results to the sink's lanes.
//
// A sink has one Dispatcher. A Lane is the dispatch half of one leased lane. The lanes and
// their dispatcher share the only mutex of the hot path: a worker ends the turn of an item and takes
// the next one in one critical section. The settle half of a lane (package settle) has no lock:
// Lane.Dirty signals it, it takes the outcome with Lane.Take, and it hands parked deliveries
// back with the Resume methods.
//
// The way of a delivery: the feed or the lane's own reader hands over a page (Lane.Offer, Lane.Add),
// or the settle half parked deliveries (Lane.ResumeDue, Lane.ResumeFollowers). Each row becomes an
// item, which goes, waits behind its key, or is parked (enqueue, resume). Items that go are queued
// (Dispatcher.offer). A worker fills a call with them, makes it, and judges each result (call.go,
// result.go). The lane notes how the item's turn ended (Lane.end), until the next Take.
package dispatch

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder/internal/budget"
	"github.com/waybill-go/waybill/framework/forwarder/internal/caller"
	"github.com/waybill-go/waybill/framework/forwarder/internal/fairqueue"
	"github.com/waybill-go/waybill/framework/forwarder/internal/memory"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/tracing"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// Config is the configuration of a dispatcher. Observer and Tracing are optional.
type Config struct {
	Sink   string
	Caller *caller.Caller
	// TypeOf returns the present name of a type.
	TypeOf   func(name string) string
	Settings policy.Settings
	Collect  settings.Collect
	Types    *registry.Registry // nil: the types are not known
	Budget   *budget.Budget
	Observer event.Observer      // nil: none
	Tracing  *tracing.Deliveries // nil: none
	Logger   *slog.Logger
}

// Dispatcher makes the deliveries to one sink. It is safe for concurrent use.
type Dispatcher struct {
	name     string
	log      *slog.Logger
	caller   *caller.Caller
	typeOf   func(name string) string
	collect  settings.Collect
	budget   *budget.Budget
	observer event.Observer
	tracing  *tracing.Deliveries
	types    *registry.Registry
	hours    atomic.Pointer[hours] // nil: there are none
	offering time.Duration         // offerTime, or that of a test

	mu           sync.Mutex
	settings     policy.Settings
	batch        sinks.BatchLimits
	lanes        map[*Lane]bool          // being worked on
	memories     memory.Lanes            // deliveries made but not written under lost leases
	verdicts     map[int]verdicts        // by lane: errors that aborted the destination's transactions
	queue        *fairqueue.Queue[*item] // items that may go now: at most one for each key
	pending      int                     // unsettled items
	inFlight     int                     // of these, in calls of the sink
	calls        int                     // running calls of the sink
	stuck        int                     // of these, abandoned
	workers      []*call                 // one for each worker; workers are started when needed
	idle         int                     // workers that wait for work
	ended        int                     // workers that have ended
	work         *sync.Cond              // signalled when a worker may have something to do
	drained      *sync.Cond              // signalled when a lane's inFlight falls to 0, or a worker ends
	breaker      *policy.Circuit
	tried        tried
	destinations map[string]*destination     // destinations with a problem
	doubtful     int                         // items in flight to them
	contacts     map[string]*contact         // destinations of items in flight
	silent       map[string]bool             // of these, those that get no further ones; see holdIfSilent
	governors    map[string]*policy.Governor // of an adaptive parallelism: one for the sink, or for each destination
	rate         *policy.Limiter
	admitted     bool // the rate has admitted an item that was not added to a call
	databases    int  // number of databases of the fleet; 0: no fleet
	forwarders   int  // number of forwarders of the fleet
	failures     failureLog
	since        time.Time // when the first item began to wait for a batch to fill
	again        alarm     // wakes the workers
	watch        alarm     // looks for calls that do not return; set while there are calls
	stopping     bool
	stats        map[string]*Stats // by database
}

// New returns a dispatcher. It starts no workers: they start when there is work.
func New(c Config) *Dispatcher {
	d := &Dispatcher{
		name: c.Sink, log: c.Logger.With("sink", c.Sink), caller: c.Caller, typeOf: c.TypeOf, collect: c.Collect, budget: c.Budget, observer: c.Observer, tracing: c.Tracing, types: c.Types, offering: offerTime,
		settings: c.Settings, breaker: policy.NewCircuit(c.Settings.Breaker), rate: policy.NewLimiter(c.Settings.Rate),
		lanes: make(map[*Lane]bool), stats: make(map[string]*Stats), destinations: make(map[string]*destination), contacts: make(map[string]*contact), silent: make(map[string]bool), governors: make(map[string]*policy.Governor), queue: fairqueue.New[*item](), batch: sinks.BatchLimits{Size: 1},
	}
	d.hours.Store(newHours(c.Settings.Hours, c.Types, d.log))
	d.work = sync.NewCond(&d.mu)
	d.drained = sync.NewCond(&d.mu)
	d.again = newAlarm(d.lookAgain)
	d.failures = failureLog{counts: make(map[failureKind]int), timer: time.AfterFunc(time.Hour, d.logFailureCounts)}
	d.failures.timer.Stop()
	d.watch = newAlarm(d.abandonLate)
	return d
}

// CheckBatch reports batch limits that are not valid.
func CheckBatch(sink string, limits sinks.BatchLimits) error {
	if limits.Wait < 0 || limits.Size > WindowRows {
		return fmt.Errorf("sink %s asks for batches of %d that wait %s: use a size of 1 to %d, and a wait of 0 or more", sink, limits.Size, limits.Wait, WindowRows)
	}
	return nil
}

// UseBatches makes the dispatcher deliver in batches. It must be called before the first
// delivery.
func (d *Dispatcher) UseBatches(batcher sinks.Batcher, limits sinks.BatchLimits) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.caller.Batcher, d.batch = batcher, limits
}

// Name returns the sink's name.
func (d *Dispatcher) Name() string { return d.name }

// Collect returns how deliveries are collected.
func (d *Dispatcher) Collect() settings.Collect { return d.collect }

// LogOf returns the sink's logger for one of several databases; "" for a single one.
func (d *Dispatcher) LogOf(database string) *slog.Logger {
	if database == "" {
		return d.log
	}
	return d.log.With("database", database)
}

// Settings returns the present settings.
func (d *Dispatcher) Settings() policy.Settings {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.settings
}

// Adjust replaces the settings, at any time.
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
	if s.Hours != d.settings.Hours {
		d.hours.Store(newHours(s.Hours, d.types, d.log))
	}
	before := d.settings
	regroup := s.Fairness != before.Fairness
	d.settings = s
	d.adjustGovernors(before)
	if regroup {
		d.queue.Regroup(d.groupOf, func(a, b *item) int { return cmp.Compare(a.Offset, b.Offset) })
	}
	d.shareRate()
	d.work.Broadcast()
	d.wakeWorker()
}

// Retain forgets what is remembered of all lanes but the selected ones.
func (d *Dispatcher) Retain(lane func(store.Lane) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.memories.Retain(lane)
}

// Divide sets the size of the fleet that shares the sink's rate; 0 and 0: no fleet, so that only
// the lanes of one database share it.
func (d *Dispatcher) Divide(databases, forwarders int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.databases != databases || d.forwarders != forwarders {
		d.databases, d.forwarders = databases, forwarders
		d.shareRate()
		d.work.Broadcast()
	}
}

// Stop ends the workers after the lanes have ended. It does not wait for a worker whose sink
// ignores its context.
func (d *Dispatcher) Stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopping = true
	d.again.timer.Stop()
	d.watch.timer.Stop()
	d.failures.timer.Stop()
	d.logCounts()
	d.work.Broadcast()
	for len(d.workers)-d.ended > d.calls {
		d.drained.Wait()
	}
}

// offer queues an item that may go now.
func (d *Dispatcher) offer(it *item) {
	first := d.queue.Len() == 0
	if !d.enqueue(it, false) {
		return
	}
	if first && d.batch.Wait > 0 {
		d.since = time.Now()
	}
	d.wakeWorker()
}

// enqueue queues an item at the front or at the end. It returns false if the item is held.
func (d *Dispatcher) enqueue(it *item, front bool) bool {
	if it.lane.holds() {
		it.lane.held = append(it.lane.held, it)
		return false
	}
	d.queue.Push(it, d.groupOf(it), front)
	return true
}

// behind counts an item that waits behind the head of its key.
func (d *Dispatcher) behind() {
	d.pending++
	if d.batch.Ordered && d.batch.Wait > 0 {
		d.wakeWorker() // it may fill a batch
	}
}

// groupOf returns the group with which an item shares the sink's slots.
func (d *Dispatcher) groupOf(it *item) string {
	if d.settings.Fairness == "" {
		return it.destination
	}
	return it.Metadata[d.settings.Fairness]
}

// wakeWorker wakes or starts a worker for what is queued.
func (d *Dispatcher) wakeWorker() {
	switch workers := len(d.workers); {
	case d.idle > 0:
		d.work.Signal()
	case workers < d.settings.Parallelism.Most() && workers < d.calls+d.queue.Len():
		c := &call{}
		d.workers = append(d.workers, c)
		go d.run(c)
	}
}

// run is the loop of one worker. It returns when the dispatcher stops.
func (d *Dispatcher) run(c *call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for now := time.Now(); d.next(c, now); {
		d.mu.Unlock()
		d.makeCall(c)
		d.mu.Lock()
		now = time.Now() // after locking: the lease may have ended while this waited for the lock
		d.observe(c, now)
		d.calls--
		if c.abandoned {
			d.stuck--
		} else {
			d.judge(c, now)
		}
		c.reset()
	}
	d.ended++
	d.drained.Broadcast()
}

// next waits for a call to make; false when the dispatcher stops.
func (d *Dispatcher) next(c *call, now time.Time) bool {
	for !d.stopping {
		if d.fill(c, now) {
			if d.queue.Len() > 0 {
				d.wakeWorker() // each worker wakes the next one while there is work
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

// lookAt makes the workers look again at the given time.
func (d *Dispatcher) lookAt(at time.Time) { d.again.set(at) }

func (d *Dispatcher) lookAgain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.again.rang()
	d.work.Broadcast()
}

// shareRate sets this forwarder's part of the sink's rate: the part of all slots that its lanes
// have. In a fleet that would give most of the rate to databases that do not use it, since most
// are idle: if the fleet has at least as many databases as forwarders, each forwarder gets the
// same part.
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
