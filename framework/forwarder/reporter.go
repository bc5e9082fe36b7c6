package forwarder

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
)

// reporter collects what a forwarder reports in its heartbeats. It stands before the configured
// observer to see checkpoints, and is safe for concurrent use.
type reporter struct {
	observer event.Observer // nil: none
	version  string

	mu       sync.Mutex
	settings string
	// slowest is the longest checkpoint since turned; before is that of the period before.
	slowest, before time.Duration
	turned          time.Time
	tallies         map[string]*tally    // by database
	collected       map[string]Collected // of replaced dispatchers, by sink
}

// slowestPeriod is the period of slowest, so that a checkpoint is reported for between one
// and two periods.
const slowestPeriod = 30 * time.Second

func newReporter(c Config) *reporter {
	return &reporter{observer: c.Observer, version: programVersion(), settings: c.digest(), turned: time.Now(), tallies: make(map[string]*tally), collected: make(map[string]Collected)}
}

// Observe implements event.Observer.
func (r *reporter) Observe(e event.Event) {
	if c, ok := e.(*event.Checkpoint); ok {
		r.mu.Lock()
		r.turn()
		r.slowest = max(r.slowest, c.Duration)
		r.mu.Unlock()
	}
	event.Tell(r.observer, e)
}

// turn begins a new period if the last one is over. The caller holds mu.
func (r *reporter) turn() {
	switch passed := time.Since(r.turned); {
	case passed >= 2*slowestPeriod:
		r.before, r.slowest, r.turned = 0, 0, time.Now()
	case passed >= slowestPeriod:
		r.before, r.slowest, r.turned = r.slowest, 0, time.Now()
	}
}

// report returns the next heartbeat. It holds a lock only to read a few figures.
func (f *Forwarder) report(database string) store.Running {
	active := f.activeSinks()
	sinks := make([]store.SinkRunning, 0, len(active))
	for _, a := range active {
		sinks = append(sinks, sinkRunning(a.dispatcher, database))
	}
	return f.reporter.report(sinks, database)
}

// report returns the next heartbeat, from the figures of the present dispatchers.
func (r *reporter) report(sinks []store.SinkRunning, database string) store.Running {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn()
	return store.Running{
		Version: r.version, Settings: r.settings, Checkpoint: max(r.slowest, r.before),
		Sinks: store.BoundSinks(r.tallyOf(database).count(sinks, time.Now())),
	}
}

// maxCause bounds the cause of an open breaker in a heartbeat, in bytes. The sink's state in
// the database has more of it.
const maxCause = 100

func sinkRunning(d *dispatch.Dispatcher, database string) store.SinkRunning {
	done, now := d.StatsIn(database), d.Figures()
	s := store.SinkRunning{Sink: done.Sink, Delivered: done.Delivered, Failed: done.Failed, Dead: done.Dead,
		InFlight: done.InFlight, Threshold: now.Threshold, Pending: done.Pending, BreakerOpen: now.BreakerOpen}
	if s.BreakerOpen {
		s.Cause = store.CutText(d.State().Cause, maxCause)
	}
	return s
}

// tallyOf is the tally of a database. The caller holds mu.
func (r *reporter) tallyOf(database string) *tally {
	t := r.tallies[database]
	if t == nil {
		t = &tally{}
		r.tallies[database] = t
	}
	return t
}

// ended adds the counts of a dispatcher that was replaced.
func (r *reporter) ended(d *dispatch.Dispatcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, database := range d.Databases() {
		r.tallyOf(database).ended(d.StatsIn(database))
	}
	s := d.Stats()
	r.collected[s.Sink] = r.collected[s.Sink].Plus(collectedOf(s))
}

// collectedBy returns what a dispatcher and those that it has replaced have collected.
func (r *reporter) collectedBy(d *dispatch.Dispatcher) Collected {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := d.Stats()
	return r.collected[s.Sink].Plus(collectedOf(s))
}

// forget drops the counts of a database.
func (r *reporter) forget(database string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tallies, database)
}

// configure sets the configuration of a reload.
func (r *reporter) configure(c Config) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settings = c.digest()
}

// digest is the same for forwarders with the same routes and delivery rules. It leaves out the
// sinks themselves: Go values cannot be compared in general, and may contain secrets.
func (c Config) digest() string {
	type rules struct {
		Parallelism Parallelism
		Retry       Retry
		OnDead      OnDead
		Timeout     time.Duration
		Rate        string
		Breaker     Breaker
		Fairness    string
		Trace       Trace
		Hours       Hours   `json:",omitzero"`
		Collect     Collect `json:",omitzero"`
	}
	all := struct {
		Routes                           route.Routes
		Sinks                            map[string]rules
		Lanes                            int
		Lease, Retention, InboxRetention time.Duration
		Unrouted                         Unrouted
	}{c.Routes, make(map[string]rules), c.Lanes, c.Lease, c.Retention, c.InboxRetention, c.Unrouted}
	for name, s := range c.Sinks {
		all.Sinks[name] = rules{s.Parallelism, s.Retry, s.OnDead, s.Timeout, fmt.Sprint(s.Rate), s.Breaker, s.Fairness, s.Trace, s.Hours, s.Collect}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "" // as of a forwarder that reports no digest
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))[:12]
}

// programVersion returns the version of the main module and the revision it was built from.
func programVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	version := info.Main.Path + " " + info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			version += " " + s.Value[:min(12, len(s.Value))]
		}
	}
	return version
}
