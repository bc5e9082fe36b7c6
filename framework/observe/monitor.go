// Package observe shows machines how a forwarder does: metrics in the form of Prometheus, and
// probes.
//
// A Monitor is an Observer of forwarders, a collector of metrics and an http.Handler. It lives
// outside of any forwarder, so that its totals outlast a reload, and another forwarder that takes
// a forwarder's place:
//
//	monitor := observe.New(observe.Config{})
//	f, err := forwarder.New(forwarder.Config{…, Observer: monitor})
//	defer monitor.Watch(observe.Target{Forwarder: f, Store: store, DB: db})()
//	go monitor.Run(ctx)
//	http.ListenAndServe("127.0.0.1:8090", monitor)
//
// Labels are names of sinks and words of a short list, never keys, ids, lanes or texts of
// errors. Types of notifications are labels of one metric only, if asked for:
//
//	monitor := observe.New(observe.Config{Types: true})
//	publisher, err := outbox.New(types, store, outbox.Config{Published: monitor.Published})
//
// The files in the order in which to read them: monitor.go, counts.go, histogram.go, collect.go, sample.go,
// probes.go, join.go.
package observe

import (
	"database/sql"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
)

// DefaultInterval is how often figures are sampled from the database.
const DefaultInterval = 15 * time.Second

// Config is what a monitor works with. The zero value is the usual one.
type Config struct {
	// Interval is how often figures are sampled from the database; default
	// DefaultInterval.
	Interval time.Duration
	// Version is that of the program, for waybill_build_info.
	Version string
	// Types counts what is published by type, where Published is called; default false.
	// Types have labels of their own up to 100, and the others share _other.
	Types bool
	// Databases gives what is sampled from a database the label database, for a forwarder of several; default
	// false.
	Databases bool
	// Logger gets a line when sampling begins to fail and when it works again; default:
	// slog's.
	Logger *slog.Logger
}

// Target is a forwarder to show.
type Target struct {
	// Forwarder is required.
	Forwarder *forwarder.Forwarder
	// Store is sampled. The stores of this module are Samplers; nil: there are no sampled
	// figures.
	Store store.Sampler
	// Databases, in place of Store, are those of a forwarder of several.
	Databases func() []Database
	// DB is the pool of connections whose figures are shown; nil: none.
	DB *sql.DB
}

// Database is one of several databases.
type Database struct {
	Name, State string
	// Rests says that nothing happens there since a time.
	Rests bool
	Since time.Time
	// Store is nil where this process has not opened it.
	Store store.Sampler
}

// Monitor counts what forwarders do. It is safe for concurrent use.
type Monitor struct {
	forwarder.Unobserved
	config   Config
	began    time.Time
	registry *prometheus.Registry
	mux      *http.ServeMux
	patience time.Duration // for which a loop of the forwarder may not turn

	trip      atomic.Int64 // when a round trip to the database last ended, in Unix nanoseconds
	stopping  atomic.Bool
	sinks     atomic.Pointer[map[string]*sinkCounts]
	addingOne sync.Mutex // of sinks

	mu      sync.Mutex
	totals  totals
	target  *Target
	pool    prometheus.Collector // the target's; nil: none
	samples map[string]*sample   // by database; "" for the only one
	sampled chan struct{}        // closed and replaced with each sample, for tests

	kick chan struct{} // capacity 1: there is another target
}

var (
	_ forwarder.Observer   = (*Monitor)(nil)
	_ prometheus.Collector = (*Monitor)(nil)
	_ http.Handler         = (*Monitor)(nil)
)

// New returns a monitor. It starts nothing.
func New(c Config) *Monitor {
	if c.Interval == 0 {
		c.Interval = DefaultInterval
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	m := &Monitor{
		config: c, began: time.Now(), registry: prometheus.NewRegistry(), mux: http.NewServeMux(), patience: loopPatience,
		totals: newTotals(), sampled: make(chan struct{}), samples: make(map[string]*sample), kick: make(chan struct{}, 1),
	}
	m.sinks.Store(&map[string]*sinkCounts{})
	m.registry.MustRegister(m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.mux.HandleFunc("GET /livez", m.serveLive)
	m.mux.HandleFunc("GET /healthz", m.serveLive)
	m.mux.HandleFunc("GET /readyz", m.serveReady)
	m.mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	return m
}

// ServeHTTP serves /livez, /healthz, /readyz and /metrics. It uses no database.
func (m *Monitor) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.mux.ServeHTTP(w, r) }

// Gatherer is the monitor's own registry: its metrics, Go's and the process's. Programs with a
// registry of their own register the monitor there, as a prometheus.Collector.
func (m *Monitor) Gatherer() prometheus.Gatherer { return m.registry }

// Expect makes the series of sinks exist before anything happens. Watch does that for the sinks
// of its forwarder.
func (m *Monitor) Expect(sinks ...string) {
	for _, sink := range sinks {
		m.counts(sink)
	}
}

// ExpectTypes makes the series of types exist before anything of them is published, if
// Config.Types asks for them.
func (m *Monitor) ExpectTypes(types ...string) {
	if !m.config.Types {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, typ := range types {
		m.totals.publish(typ, 0)
	}
}

// Watch makes a forwarder, before it runs, the one that is shown, in place of the one before.
// release ends that, unless another one is shown by then.
func (m *Monitor) Watch(t Target) (release func()) {
	for _, s := range t.Forwarder.Figures().Sinks {
		m.counts(s.Sink)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.target, m.pool = &t, nil
	if t.DB != nil {
		m.pool = collectors.NewDBStatsCollector(t.DB, poolName)
	}
	m.trip.Store(0)
	select {
	case m.kick <- struct{}{}:
	default:
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.target == &t {
			m.target, m.pool = nil, nil
		}
	}
}

// Stop makes the monitor not ready, since the program stops.
func (m *Monitor) Stop() { m.stopping.Store(true) }

// Reloaded notes whether the configuration that was read last was taken over.
func (m *Monitor) Reloaded(success bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.totals.reloadFailed = !success
}

// watched is the target, nil if there is none, and the collector of its pool.
func (m *Monitor) watched() (*Target, prometheus.Collector) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.target, m.pool
}
