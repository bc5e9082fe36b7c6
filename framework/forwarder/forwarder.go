// Package forwarder delivers notifications: it reads envelopes from the log of an outbox and
// hands them to sinks, at least once and in order for each key.
//
// Create a [Forwarder] from a [Config] with the store, the routes and the sinks, and call
// [Forwarder.Run]. While it runs, [Forwarder.Adjust] and [Forwarder.Reload] change how and
// where it delivers; [Forwarder.Stats] and [Forwarder.Figures] report what it does. For
// several outboxes with the same sinks, see [Forwarder.RunDatabase].
package forwarder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-go/waybill/framework/forwarder/internal/budget"
	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/tracing"
)

// Forwarder delivers the envelopes of an outbox to sinks. Any number of forwarders, in any
// number of processes, may share one outbox: only one of them at a time works on each lane of
// each sink.
type Forwarder struct {
	config   Config // with the Sinks and Routes that New got
	owner    string
	memory   *budget.Budget
	reporter *reporter

	changing sync.Mutex // one Adjust or Reload at a time
	keyrings sync.Map   // *privacy.Keyring by the name of the database

	began  chan struct{}  // closed when the sinks are open
	over   chan struct{}  // closed when Run has returned, or accepts no more databases
	hosted sync.WaitGroup // work on the databases of RunDatabase

	mu         sync.Mutex
	stop       context.Context // of Run; nil while no database may be worked on
	routes     *route.Table
	sinks      map[string]*activeSink // including _unrouted
	configured []string               // names of all sinks, including those left to other forwarders
	opened     []opened
	outboxes   []*outbox       // being worked on
	admitted   map[string]bool // names of the databases of RunDatabase
	rateShare  rateShare
}

// New checks the configuration and reports all mistakes at once, as ErrConfig. It opens and
// starts nothing.
func New(c Config) (*Forwarder, error) {
	c = c.WithDefaults()
	c.Logger = slog.New(withoutAnswers{c.Logger.Handler()})
	routes, err := c.compile()
	if err != nil {
		return nil, err
	}
	f := &Forwarder{
		config:    c,
		reporter:  newReporter(c),
		owner:     fmt.Sprintf("%s/%d/%s", c.Name, os.Getpid(), uuid.NewString()[:8]),
		memory:    budget.New(c.Memory),
		began:     make(chan struct{}),
		over:      make(chan struct{}),
		routes:    routes,
		admitted:  make(map[string]bool),
		rateShare: rateShare{members: make(map[*outbox]int)},
	}
	f.sinks, f.configured = f.newSinks(c.Sinks, routes), slices.Collect(maps.Keys(c.Sinks))
	return f, nil
}

// Adjust changes how deliveries to a sink are made, before Run or while it runs. change gets
// the present settings and modifies them. Parallelism, Retry, Timeout, Rate, Breaker
// and Fairness take effect with the next delivery, and no delivery is lost or repeated. A lower
// threshold applies once enough deliveries in flight have ended. Other fields cannot be
// changed. Settings that are not valid, and another OnDead, fail with ErrConfig and change
// nothing.
func (f *Forwarder) Adjust(sink string, change func(s *Sink)) error {
	f.changing.Lock()
	defer f.changing.Unlock()
	a := f.activeSinks()[sink]
	if a == nil || sink == store.SinkUnrouted {
		return fmt.Errorf("%w: there is no sink %q", ErrConfig, sink)
	}
	d := a.dispatcher
	changed := a.with(d.Settings())
	changed.Retry = changed.Retry.Clone()
	change(&changed)
	changed = changed.WithDefaults()
	p := &settings.Problems{}
	changed.validate(p, "sinks."+sink)
	f.config.checkInbox(p, sink, changed)
	p.Require(changed.OnDead == d.Settings().OnDead, "sinks.%s.on_dead cannot be changed while the forwarder runs", sink)
	if err := p.Err(); err != nil {
		return err
	}
	d.Adjust(changed.settings())
	return nil
}

// Settings returns the present settings of a sink, with defaults and with what Adjust and
// Reload have changed. works is false for a sink that the forwarder does not work on. It may
// be called at any time.
func (f *Forwarder) Settings(sink string) (s Sink, works bool) {
	a := f.activeSinks()[sink]
	if a == nil {
		return Sink{}, false
	}
	return a.with(a.dispatcher.Settings()), true
}

// Owner returns the forwarder's name in leases and heartbeats, which is unique to this process
// and forwarder.
func (f *Forwarder) Owner() string { return f.owner }

// OwnerIn is Owner in one of several databases. It differs between them: if two of them turn out
// to be the same database, their leases keep them apart like two forwarders.
func (f *Forwarder) OwnerIn(database string) string {
	if database == "" {
		return f.owner
	}
	return f.owner + "-" + database
}

// Wake makes the forwarder look at its logs at once. A publisher in the same process calls it
// after a commit. Without it, a forwarder finds new rows when the store announces them, or at
// the latest after the poll's pause. Wake never blocks and may be called at any time.
func (f *Forwarder) Wake() {
	for _, o := range f.workedOn() {
		o.feed.Wake()
	}
}

// Run opens the sinks and forwards until ctx is done. Then it stops gracefully: it reads no
// more, lets deliveries in flight end within the shutdown timeout, writes the last
// checkpoints, releases its leases, closes the sinks, and returns nil.
//
// If the database or a destination fails, Run logs that and keeps trying. A sink that does not
// open is unavailable; Run tries to open it again before its deliveries. Run returns an error
// only for what waiting cannot repair, such as cursors that do not fit the configuration.
//
// Run is called once. Without a Config.Store it works on no database by itself: see
// [Forwarder.RunDatabase].
func (f *Forwarder) Run(ctx context.Context) (err error) {
	ctx, end := context.WithCancel(tracing.Detach(ctx)) // deliveries do not belong to the trace of Run's caller
	defer end()
	defer close(f.over)
	defer func() { err = errors.Join(err, f.closeSinks(context.WithoutCancel(ctx))) }()
	if err := f.openSinks(ctx); err != nil {
		return err
	}
	f.config.Logger.Info("forwarding", "owner", f.owner, "sinks", f.names(), "lanes", f.config.Lanes)
	f.warnOfUnrouted()

	f.begin(ctx)
	var fatal error
	if f.config.Store != nil {
		fatal = f.workOn(ctx, Database{Store: f.config.Store})
		end()
	}
	<-ctx.Done()
	f.finish()
	for _, a := range f.activeSinks() {
		a.dispatcher.Stop()
	}
	f.config.Logger.Info("stopped")
	return fatal
}

// warnOfUnrouted logs the registered types that no route matches.
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

// Stats counts what a forwarder has done for one sink since it was created: Sink, Delivered,
// Failed, Dead, PassedBy, Superseded, Collections, Ungrouped, Pending, InFlight and Abandoned.
type Stats = dispatch.Stats

// Stats returns the counts of each sink, in alphabetical order. It may be called at any time.
func (f *Forwarder) Stats() []Stats { return f.stats((*dispatch.Dispatcher).Stats) }

// StatsIn is Stats of one of several databases; "" means Config.Store.
func (f *Forwarder) StatsIn(database string) []Stats {
	return f.stats(func(d *dispatch.Dispatcher) Stats { return d.StatsIn(database) })
}

func (f *Forwarder) stats(of func(*dispatch.Dispatcher) Stats) []Stats {
	active := f.activeSinks()
	all := make([]Stats, 0, len(active))
	for _, name := range slices.Sorted(maps.Keys(active)) {
		all = append(all, of(active[name].dispatcher))
	}
	return all
}

// SinkFigures is the present state of one sink in this forwarder: Sink, Threshold, InFlight,
// Pending, Abandoned, BreakerOpen and ThrottledUntil.
type SinkFigures struct {
	dispatch.Figures
	// Collects reports whether the sink collects. Collected is what it has, since the forwarder was made.
	Collects  bool
	Collected Collected
	// Types are the types that routes send to the sink.
	Types notification.TypeFilter
	// OnDead is the sink's rule for a key with a dead delivery.
	OnDead OnDead
}

// Collected counts, as Stats do, deliveries of collections, what was superseded, and what has no group.
type Collected struct{ Collections, Superseded, Ungrouped int64 }

// Plus returns the sum of both.
func (c Collected) Plus(more Collected) Collected {
	return Collected{c.Collections + more.Collections, c.Superseded + more.Superseded, c.Ungrouped + more.Ungrouped}
}

// Since returns what came after an earlier count of the same forwarder, and nothing where that is higher.
func (c Collected) Since(earlier Collected) Collected {
	return Collected{max(0, c.Collections-earlier.Collections), max(0, c.Superseded-earlier.Superseded), max(0, c.Ungrouped-earlier.Ungrouped)}
}

func collectedOf(s Stats) Collected { return Collected{s.Collections, s.Superseded, s.Ungrouped} }

// Figures is the present state of a forwarder, for metrics and probes.
type Figures struct {
	// Sinks are the sinks that the forwarder works on, in alphabetical order.
	Sinks []SinkFigures
	// Databases are those that it works on now: Config.Store, whose name is "", and those of RunDatabase.
	Databases []DatabaseFigures
	// Listening reports whether every database announces new rows.
	Listening bool
	// Looked, Coordinated and Leased are the earliest ones of the databases.
	Looked, Coordinated, Leased time.Time
	// Lease and Retention come from the configuration, with the defaults.
	Lease, Retention time.Duration
}

// Figures returns the forwarder's present state. It may be called at any time, and does not
// use the database.
func (f *Forwarder) Figures() Figures {
	active := f.activeSinks()
	now := Figures{Lease: f.config.Lease, Retention: f.config.Retention}
	for _, o := range f.workedOn() {
		now.Databases = append(now.Databases, o.figures())
	}
	now.sum()
	for _, name := range slices.Sorted(maps.Keys(active)) {
		a := active[name]
		now.Sinks = append(now.Sinks, SinkFigures{Figures: a.dispatcher.Figures(), Types: a.types, OnDead: a.OnDead,
			Collects: a.Collect.On(), Collected: f.reporter.collectedBy(a.dispatcher)})
	}
	return now
}
