// Package observe serves Prometheus metrics and health probes of a forwarder.
//
// A [Monitor] is an observer of forwarders, a collector of metrics and an http.Handler. It exists
// apart from the forwarder, so its totals survive when another forwarder takes over in the same
// process:
//
//	monitor := observe.New(observe.Config{})
//	f, err := forwarder.New(forwarder.Config{…, Observer: monitor})
//	defer monitor.Watch(observe.Target{Forwarder: f, Store: store, DB: db})()
//	go monitor.Run(ctx)
//	http.ListenAndServe("127.0.0.1:8090", monitor)
//
// With package waybill the observer is in Outbox.Config, and Open makes the forwarder: see the
// example.
//
// Labels are names of sinks and words from short lists, never keys, ids, lanes or error texts.
// Notification types are labels of a single metric, which is off by default:
//
//	monitor := observe.New(observe.Config{Types: true})
//	publisher, err := outbox.New(types, store, outbox.Config{Published: monitor.Published})
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

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
)

// DefaultInterval is the default time between two samples of the database.
const DefaultInterval = 15 * time.Second

// Config configures a monitor. The zero value is ready to use.
type Config struct {
	// Interval is the time between two samples of the database; the default is
	// DefaultInterval.
	Interval time.Duration
	// Version is the program's version, for waybill_build_info.
	Version string
	// Types counts what is published by type, if Published is called. Up to 100 types have
	// their own label; the others share the label _other.
	Types bool
	// Databases adds the label database to samples, for a forwarder of several databases.
	Databases bool
	// Logger gets a line when sampling starts to fail and when it works again; nil means
	// slog's default.
	Logger *slog.Logger
}

// Target is the forwarder that a monitor watches.
type Target struct {
	// Forwarder is required.
	Forwarder *forwarder.Forwarder
	// Store is sampled; the stores of this module are Samplers. With nil there are no samples.
	Store store.Sampler
	// Databases returns the databases of a forwarder of several. It replaces Store.
	Databases func() []Database
	// DB is the connection pool whose statistics are shown; nil for none.
	DB *sql.DB
}

// Database is one of several databases.
type Database struct {
	Name, State string
	// Rests reports that nothing has happened in the database since the time Since.
	Rests bool
	Since time.Time
	// Store is nil if this process has not opened the database.
	Store store.Sampler
}

// Monitor counts what forwarders do, and serves the counts. It is safe for concurrent use.
type Monitor struct {
	config   Config
	began    time.Time
	registry *prometheus.Registry
	mux      *http.ServeMux
	patience time.Duration // how long a loop of the forwarder may stand still

	trip      atomic.Int64 // when a round trip to the database last ended, in Unix nanoseconds
	stopping  atomic.Bool
	sinks     atomic.Pointer[map[string]*sinkCounts]
	addingOne sync.Mutex // of sinks

	mu        sync.Mutex
	collected map[string]forwarder.Collected // by sink
	totals    totals
	target    *Target
	seen      map[*Target]map[string]forwarder.Collected // the part of collected that each target has, by sink
	pool      prometheus.Collector                       // of the target's pool; nil if there is none
	samples   map[string]*sample                         // by database; "" for the only one
	sampled   chan struct{}                              // closed and replaced after each sample, for tests

	wake chan struct{} // of capacity 1: there is a new target
}

var (
	_ event.Observer       = (*Monitor)(nil)
	_ prometheus.Collector = (*Monitor)(nil)
	_ http.Handler         = (*Monitor)(nil)
)

// New returns a monitor. Call Run to sample the database.
func New(c Config) *Monitor {
	if c.Interval == 0 {
		c.Interval = DefaultInterval
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	m := &Monitor{
		config: c, began: time.Now(), registry: prometheus.NewRegistry(), mux: http.NewServeMux(), patience: loopPatience,
		totals: newTotals(), sampled: make(chan struct{}), samples: make(map[string]*sample), wake: make(chan struct{}, 1),
		collected: make(map[string]forwarder.Collected), seen: make(map[*Target]map[string]forwarder.Collected),
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

// Gatherer returns the monitor's registry, with its metrics and those of Go and the process. A
// program with its own registry registers the monitor there, as a prometheus.Collector.
func (m *Monitor) Gatherer() prometheus.Gatherer { return m.registry }

// Expect creates the series of sinks before anything has happened. Watch does this for the sinks
// of its forwarder.
func (m *Monitor) Expect(sinks ...string) {
	for _, sink := range sinks {
		m.counts(sink)
	}
}

// ExpectTypes creates the series of types before anything is published, if Config.Types is set.
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

// Watch makes the monitor show a forwarder, which must not run yet, instead of the previous one.
// release ends this, unless the monitor shows another forwarder by then.
func (m *Monitor) Watch(t Target) (release func()) {
	for _, s := range t.Forwarder.Figures().Sinks {
		m.counts(s.Sink)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.target, m.pool = &t, nil
	m.seen[&t] = make(map[string]forwarder.Collected)
	if t.DB != nil {
		m.pool = collectors.NewDBStatsCollector(t.DB, poolName)
	}
	m.trip.Store(0)
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return func() {
		m.figures(&t)
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.seen, &t)
		if m.target == &t {
			m.target, m.pool = nil, nil
		}
	}
}

// Stop makes the monitor report that it is not ready, because the program stops.
func (m *Monitor) Stop() { m.stopping.Store(true) }

// Reloaded records whether the last reload of the configuration was applied.
func (m *Monitor) Reloaded(success bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.totals.reloadFailed = !success
}

// watched returns the target, nil if there is none, and the collector of its pool.
func (m *Monitor) watched() (*Target, prometheus.Collector) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.target, m.pool
}
