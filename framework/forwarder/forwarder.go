// Package forwarder is the engine: it carries envelopes from the log to the
// sinks, at least once, in order for each key.
//
// The way of one notification: the feed sees that the log has grown; a lane takes a page;
// each item waits for its key's turn and is handed to the sink's dispatcher, whose workers
// deliver it; the lane's checkpointer writes what became of it. What cannot be delivered
// now is parked in that checkpoint and brought back by the checkpointer.
//
// This package is the public side. The engine is in the packages below internal, of which
// each imports only those after it: coordinate (which forwarder works on which lane), lane
// (the work on one lane), feed (reading the log), settle (checkpoints and what is parked),
// dispatch (deliveries), caller (one call of a sink), quota (how many statements run at
// once), and the parts that know nothing of the others: budget, fairqueue, keyqueue, memory,
// policy and window. The files in the order in which to read them: config.go, forwarder.go,
// working.go, reload.go, running.go, tally.go.
package forwarder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-go/waybill/framework/forwarder/internal/budget"
	"github.com/waybill-go/waybill/framework/forwarder/internal/coordinate"
	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/forwarder/internal/feed"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/forwarder/internal/prune"
	"github.com/waybill-go/waybill/framework/forwarder/internal/quota"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/tracing"
)

// Forwarder moves envelopes from one outbox to its sinks. Any number of them may
// run on one outbox, in any number of processes: each lane of each sink is worked
// on by one of them at a time.
type Forwarder struct {
	config Config         // its Sinks and Routes are those of New
	store  *quota.Bounded // the configuration's, for all but the feed
	owner  string
	feed   *feed.Feed
	memory *budget.Budget
	// running is what its heartbeats say of it.
	running *running

	changing sync.Mutex // one Adjust or Reload at a time

	mu          sync.Mutex
	routes      *route.Table
	sinks       map[string]*working // _unrouted included
	configured  []string            // names, also of sinks that are left to other forwarders
	opened      []opened
	coordinator *coordinate.Coordinator // while Run runs
}

// New checks a configuration and reports all that is wrong with it at once.
// Nothing is started or opened.
func New(c Config) (*Forwarder, error) {
	c = c.WithDefaults()
	routes, err := c.compile()
	if err != nil {
		return nil, err
	}
	f := &Forwarder{
		config:  c,
		running: newRunning(c),
		store:   quota.New(c.Store, c.Connections),
		owner:   fmt.Sprintf("%s/%d/%s", c.Name, os.Getpid(), uuid.NewString()[:8]),
		feed: feed.New(feed.Config{Log: c.Store, PollMin: c.Poll.Min, PollMax: c.Poll.Max, PageRows: dispatch.PageRows,
			Observer: c.Observer, Logger: c.Logger}),
		memory: budget.New(c.Memory),
		routes: routes,
	}
	f.sinks, f.configured = f.work(c.Sinks, routes), slices.Collect(maps.Keys(c.Sinks))
	return f, nil
}

// Adjust changes how deliveries to a sink are made while the forwarder runs, or
// before: change gets the settings as they are. Parallelism, Retry, OnUnknown, Timeout,
// Rate, Breaker and Fairness take effect with the next delivery, and nothing is lost or
// repeated by it; a threshold that was lowered is kept to as soon as enough of
// what is in flight has ended. Everything else needs another forwarder. Settings
// that make no sense, and another OnDead, are refused as ErrConfig, with nothing
// changed.
func (f *Forwarder) Adjust(sink string, change func(s *Sink)) error {
	f.changing.Lock()
	defer f.changing.Unlock()
	w := f.working()[sink]
	if w == nil || sink == store.SinkUnrouted {
		return fmt.Errorf("%w: there is no sink %q", ErrConfig, sink)
	}
	d := w.dispatcher
	changed := w.with(d.Settings())
	changed.Retry.Types = maps.Clone(changed.Retry.Types)
	change(&changed)
	changed = changed.WithDefaults()
	p := &policy.Problems{}
	changed.validate(p, "sinks."+sink)
	f.config.checkInbox(p, sink, changed)
	p.Require(changed.OnDead == d.Settings().OnDead, "sinks.%s.on_dead cannot be changed while the forwarder runs", sink)
	if err := p.Err(); err != nil {
		return err
	}
	d.Adjust(changed.settings())
	return nil
}

// Settings returns a sink as deliveries to it are made now: with the defaults, and with what
// Adjust and Reload have changed. It reports false for a sink that the forwarder does not work
// on. It may be called at any time.
func (f *Forwarder) Settings(sink string) (s Sink, works bool) {
	w := f.working()[sink]
	if w == nil {
		return Sink{}, false
	}
	return w.with(w.dispatcher.Settings()), true
}

// Owner is its name in leases and heartbeats, another one in each process.
func (f *Forwarder) Owner() string { return f.owner }

// Wake makes the forwarder look at the log at once. A publisher in the same process
// calls it after a commit. Without that call, and where the store does not listen,
// the forwarder finds new rows within the poll's pause. Wake never blocks and may
// be called at any time.
func (f *Forwarder) Wake() { f.feed.Wake() }

// Run opens the sinks and forwards until ctx is done. Then it stops gracefully:
// it reads no more, lets deliveries in flight end within the shutdown timeout,
// writes the last checkpoints, gives its leases back, closes the sinks, and
// returns nil. It returns an error only where waiting would not mend it: cursors that do
// not fit the configuration. Trouble with the database or a destination is logged and
// waited for; so is a sink that does not open: it is unavailable, and opened with a later
// delivery. Run is called once.
func (f *Forwarder) Run(ctx context.Context) (err error) {
	ctx, end := context.WithCancel(tracing.Detach(ctx)) // a delivery is no part of what Run is called in
	defer end()
	defer func() { err = errors.Join(err, f.closeSinks(context.WithoutCancel(ctx))) }()
	defer f.reserve(ctx)()
	if err := f.openSinks(ctx); err != nil {
		return err
	}
	f.config.Logger.Info("forwarding", "owner", f.owner, "sinks", f.names(), "lanes", f.config.Lanes)
	f.warnOfUnrouted()

	db, cancelDB := context.WithCancel(context.WithoutCancel(ctx)) // done: not even a last checkpoint
	defer cancelDB()
	stopping := context.AfterFunc(ctx, func() {
		if pace.Sleep(db, f.config.ShutdownTimeout+lastWrites) {
			cancelDB()
		}
	})
	defer stopping()

	coordinator := coordinate.New(f.coordination())
	f.mu.Lock()
	f.coordinator = coordinator
	f.mu.Unlock()
	var work sync.WaitGroup
	work.Go(func() { f.feed.Run(ctx) })
	if l, ok := f.config.Store.(store.Listener); ok {
		work.Go(func() { f.feed.Listen(ctx, l, coordinator.Nudge) })
	}
	var fatal error
	work.Go(func() {
		fatal = coordinator.Run(ctx, db)
		end() // where it is fatal
	})
	work.Go(func() { f.prune(ctx, db) })
	work.Wait()
	for _, w := range f.working() {
		w.dispatcher.Stop()
	}
	f.config.Logger.Info("stopped")
	return fatal
}

// In a pool that has a bound, handlers cannot use the reserved connections; otherwise
// they could keep the forwarder from renewing its leases.
const (
	reserved     = 2
	leastBounded = reserved + 2 // what a pool must allow: one is left for reading, and one for a handler
)

// reserve takes connections for leases and checkpoints out of a pool that has a bound,
// until release is called, and warns where the pool is too small.
func (f *Forwarder) reserve(ctx context.Context) (release func()) {
	release = func() {}
	r, ok := f.config.Store.(store.Reserver)
	if !ok || r.MaxConnections() == 0 {
		return release
	}
	log := f.config.Logger.With("pool_allows", r.MaxConnections(), "forwarder_needs", f.config.Connections)
	if r.MaxConnections() <= f.config.Connections {
		log.Warn("the pool of database connections is too small: the forwarder needs so many beside what handlers, hooks and the application use at once")
	}
	if r.MaxConnections() < leastBounded {
		return release
	}
	ctx, cancel := context.WithTimeout(ctx, f.config.Lease)
	defer cancel()
	taken, err := r.Reserve(ctx, reserved)
	if err != nil {
		log.Warn("no connections are reserved for leases and checkpoints: handlers that use the whole pool will cost leases", "error", err)
		return release
	}
	return taken
}

// prune removes old rows, where the store can.
func (f *Forwarder) prune(stop, db context.Context) {
	rows, ok := f.config.Store.(store.Pruner)
	if !ok {
		return
	}
	partitions, _ := f.config.Store.(store.Partitioner)
	prune.New(prune.Config{
		Leases: f.store, Rows: f.store.Pruner(rows), Partitions: f.store.Partitioner(partitions),
		Retention: f.config.Retention, InboxRetention: f.config.InboxRetention, Sinks: f.known,
		Owner: f.owner, Lease: f.config.Lease, Observer: f.config.Observer, Logger: f.config.Logger,
	}).Run(stop, db)
}

// lastWrites is how long the last checkpoints may take once deliveries were cut off.
const lastWrites = dispatch.AbandonAfter + 5*time.Second

// coordination is what the coordinator works with.
func (f *Forwarder) coordination() coordinate.Config {
	c := coordinate.Config{
		Store: f.store, Owner: f.owner, Sinks: make(map[string]coordinate.Sink), Others: make(map[string]store.Start), Lanes: f.config.Lanes,
		Lease: f.config.Lease, ShutdownTimeout: f.config.ShutdownTimeout, Feed: f.feed,
		Running: f.report, Grows: store.SourceOf(f.config.Store) != nil, Observer: f.running, Logger: f.config.Logger,
	}
	for name, w := range f.working() {
		c.Sinks[name] = w.coordination()
	}
	for name, sink := range f.config.Sinks {
		if _, mine := c.Sinks[name]; !mine {
			c.Others[name] = sink.Start
		}
	}
	return c
}

// warnOfUnrouted names the registered types that no route matches.
func (f *Forwarder) warnOfUnrouted() {
	if f.config.Types == nil {
		return
	}
	f.mu.Lock()
	routes := f.routes
	f.mu.Unlock()
	for _, t := range f.config.Types.Types() {
		if len(routes.Sinks(t.Name)) == 0 {
			f.config.Logger.Warn("no route matches a registered type", "type", t.Name, "unrouted", f.config.Unrouted)
		}
	}
}

// Stats counts what a forwarder did for one sink since it was made: Sink, Delivered,
// Failed, Dead, PassedBy, Pending, InFlight and Abandoned.
type Stats = dispatch.Stats

// Stats reports each sink, in alphabetical order. It may be called at any time.
func (f *Forwarder) Stats() []Stats {
	work := f.working()
	all := make([]Stats, 0, len(work))
	for _, name := range slices.Sorted(maps.Keys(work)) {
		all = append(all, work[name].dispatcher.Stats())
	}
	return all
}

// SinkFigures are what a forwarder does for one sink at one moment: Sink, Threshold,
// InFlight, Pending, Abandoned, BreakerOpen and ThrottledUntil.
type SinkFigures struct {
	dispatch.Figures
	// Types are those that its routes bring to the sink.
	Types notification.TypeFilter
	// OnDead is its rule for a key with a dead delivery.
	OnDead OnDead
}

// Figures are what a forwarder does at one moment, for metrics and probes.
type Figures struct {
	// Sinks are those that it works on, in alphabetical order.
	Sinks []SinkFigures
	// Listening says that the database announces new rows.
	Listening bool
	// Looked and Coordinated are when its two loops, which look at the log and at the
	// leases, last began a turn; zero: not yet. A turn ends within a lease or a minute also where
	// the database does not answer.
	Looked, Coordinated time.Time
	// Lease and Retention are those of its configuration, with the defaults.
	Lease, Retention time.Duration
}

// Figures reports what the forwarder does now. It may be called at any time, and uses no
// database.
func (f *Forwarder) Figures() Figures {
	f.mu.Lock()
	work, coordinator := f.sinks, f.coordinator
	f.mu.Unlock()
	now := Figures{Listening: f.feed.Listening(), Looked: f.feed.Turned(), Lease: f.config.Lease, Retention: f.config.Retention}
	if coordinator != nil {
		now.Coordinated = coordinator.Turned()
	}
	for _, name := range slices.Sorted(maps.Keys(work)) {
		w := work[name]
		now.Sinks = append(now.Sinks, SinkFigures{Figures: w.dispatcher.Figures(), Types: w.types, OnDead: w.OnDead})
	}
	return now
}
