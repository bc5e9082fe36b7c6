// Package forwarder is the engine: it carries envelopes from the log to the
// sinks, at least once, in order for each key.
//
// The way of one notification: the feed sees that the log has grown; a lane takes a page;
// each item waits for its key's turn and is handed to the sink's dispatcher, whose workers
// deliver it; the lane's checkpointer writes what became of it. What cannot be delivered
// now is parked in that checkpoint and brought back by the checkpointer.
//
// A forwarder has two halves: the sinks, with all that deliveries to them share (forwarder.go,
// working.go), and the outboxes that it works on, one as a rule (outbox.go), or several
// (database.go).
//
// This package is the public side. The engine is in the packages below internal, of which
// each imports only those after it: coordinate (which forwarder works on which lane), lane
// (the work on one lane), feed (reading the log), settle (checkpoints and what is parked),
// dispatch (deliveries), caller (one call of a sink), quota (how many statements run at
// once), named (which database it is), and the parts that know nothing of the others: budget, fairqueue, keyqueue, memory,
// policy and window. The files in the order in which to read them: config.go, forwarder.go,
// database.go, outbox.go, working.go, reload.go, running.go, tally.go.
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
	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/tracing"
)

// Forwarder moves envelopes from one outbox to its sinks. Any number of them may
// run on one outbox, in any number of processes: each lane of each sink is worked
// on by one of them at a time.
type Forwarder struct {
	config Config  // its Sinks and Routes are those of New
	own    *outbox // the configuration's Store; nil: none
	owner  string
	memory *budget.Budget
	// running is what its heartbeats say of it.
	running *running

	changing sync.Mutex // one Adjust or Reload at a time

	began  chan struct{}  // closed when the sinks are open
	over   chan struct{}  // closed when Run has returned, or takes no database any more
	guests sync.WaitGroup // databases of RunDatabase

	mu         sync.Mutex
	stop       context.Context // of Run, while databases may be worked on; nil: they may not
	routes     *route.Table
	sinks      map[string]*working // _unrouted included
	configured []string            // names, also of sinks that are left to other forwarders
	opened     []opened
	outboxes   []*outbox       // those that are worked on
	admitted   map[string]bool // names of those of RunDatabase
	fleet      fleet
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
		config:   c,
		running:  newRunning(c),
		owner:    fmt.Sprintf("%s/%d/%s", c.Name, os.Getpid(), uuid.NewString()[:8]),
		memory:   budget.New(c.Memory),
		began:    make(chan struct{}),
		over:     make(chan struct{}),
		routes:   routes,
		admitted: make(map[string]bool),
		fleet:    fleet{members: make(map[*outbox]int)},
	}
	if c.Store != nil {
		f.own = f.newOutbox(Database{Store: c.Store})
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

// Wake makes the forwarder look at its logs at once. A publisher in the same process
// calls it after a commit. Without that call, and where the store does not listen,
// the forwarder finds new rows within the poll's pause. Wake never blocks and may
// be called at any time.
func (f *Forwarder) Wake() {
	if f.own != nil {
		f.own.feed.Wake()
	}
	for _, o := range f.workedOn() {
		o.feed.Wake()
	}
}

// Run opens the sinks and forwards until ctx is done. Then it stops gracefully:
// it reads no more, lets deliveries in flight end within the shutdown timeout,
// writes the last checkpoints, gives its leases back, closes the sinks, and
// returns nil. It returns an error only where waiting would not mend it: cursors that do
// not fit the configuration. Trouble with the database or a destination is logged and
// waited for; so is a sink that does not open: it is unavailable, and opened with a later
// delivery. Run is called once. Where Config.Fleet is set it has no database by itself: see
// [Forwarder.RunDatabase].
func (f *Forwarder) Run(ctx context.Context) (err error) {
	ctx, end := context.WithCancel(tracing.Detach(ctx)) // a delivery is no part of what Run is called in
	defer end()
	defer close(f.over)
	defer func() { err = errors.Join(err, f.closeSinks(context.WithoutCancel(ctx))) }()
	if f.own != nil {
		defer f.own.reserve(ctx)()
	}
	if err := f.openSinks(ctx); err != nil {
		return err
	}
	f.config.Logger.Info("forwarding", "owner", f.owner, "sinks", f.names(), "lanes", f.config.Lanes)
	f.warnOfUnrouted()

	f.begin(ctx)
	var fatal error
	if f.own != nil {
		fatal = f.own.run(ctx)
		end()
	}
	<-ctx.Done()
	f.finish()
	for _, w := range f.working() {
		w.dispatcher.Stop()
	}
	f.config.Logger.Info("stopped")
	return fatal
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
	// Databases are those that it works on now: its Store, whose name is "", and those of RunDatabase.
	Databases []DatabaseFigures
	// Listening says that each of them announces new rows.
	Listening bool
	// Looked and Coordinated are the earliest of those of its databases.
	Looked, Coordinated time.Time
	// Lease and Retention are those of its configuration, with the defaults.
	Lease, Retention time.Duration
}

// Figures reports what the forwarder does now. It may be called at any time, and uses no
// database.
func (f *Forwarder) Figures() Figures {
	work := f.working()
	now := Figures{Lease: f.config.Lease, Retention: f.config.Retention}
	for _, o := range f.workedOn() {
		now.Databases = append(now.Databases, o.figures())
	}
	now.sum()
	for _, name := range slices.Sorted(maps.Keys(work)) {
		w := work[name]
		now.Sinks = append(now.Sinks, SinkFigures{Figures: w.dispatcher.Figures(), Types: w.types, OnDead: w.OnDead})
	}
	return now
}
