package forwarder

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/forwarder/internal/prune"
	"github.com/waybill-go/waybill/framework/forwarder/internal/quota"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// Config is what a forwarder works with. Store (or Fleet), Routes and Sinks are required;
// the zero value of every other field takes the default that it names.
type Config struct {
	// Store is the outbox. If it is a store.Listener, Run listens; if it is a
	// store.Reserver whose pool has a bound, Run keeps connections for leases and
	// checkpoints, and warns of a pool that is too small.
	Store Store
	// Fleet says that there is no Store: databases come and go, by [Forwarder.RunDatabase].
	Fleet bool
	// Routes say which sinks get which types; package route says what a pattern is,
	// and what rules can ask of a notification.
	Routes route.Routes
	// Sinks are the destinations by name. Names beginning with "_" are reserved.
	Sinks map[string]Sink

	// Types, if set, are the types that the application publishes: a route that
	// matches none of them is refused, and a type without a route is logged.
	Types *registry.Registry
	// Name identifies this forwarder in leases and logs; default the host's name.
	// A process id and a random part are added, so names need not be unique.
	Name string
	// Lanes is how many lanes each sink is cut into, so that several forwarders
	// can share one sink; 1 to 1,024, default 1. Cursors that are cut into another
	// number are cut again: where forwarders disagree, the one that starts last
	// decides.
	Lanes int
	// Poll bounds the pause between two looks at the log. Whatever wakes the
	// forwarder ends the pause.
	Poll Poll
	// Lease is how long a lane stays with a forwarder that does not renew its
	// lease; default 15 s, at least 1 s. A forwarder renews it after a third of
	// that.
	Lease time.Duration
	// ShutdownTimeout is how long deliveries in flight may take to end once Run's
	// context is done; default 20 s.
	ShutdownTimeout time.Duration
	// Unrouted says what becomes of notifications that no route matches.
	Unrouted Unrouted
	// Only names the sinks that this forwarder works on, beside notifications without a
	// route; default all. It leaves the others to other forwarders: it only makes their
	// cursors, and no row goes that they need.
	Only []string
	// Retention is how long after they occurred rows stay in the log, and receipts
	// after their delivery; default 72 h. KeepForever keeps all. Rows that a sink
	// has not settled stay longer. A store that is no store.Pruner keeps all.
	Retention time.Duration
	// InboxRetention is how long the inbox keeps ids (package inbox); default 720 h, or
	// KeepForever where Retention is that. It is at least the longest time for which a sink
	// that notes ids (sinks.Noter) tries a delivery again. KeepForever keeps all. Of a delivery that is made again later, such as one that a person requeues, it
	// is not known then that it was made.
	InboxRetention time.Duration
	// Memory bounds what all lanes have read and not settled, in bytes; default 256 MiB,
	// at least 1 MiB. Each lane may have one page of at most 2,000 rows beyond it.
	Memory int
	// Connections is how many statements of this forwarder run at once, and so how many
	// of the database's connections it uses, whatever the number of sinks and lanes;
	// default 8, at least 4. The connection that listens comes on top, and so do those of
	// handlers and hooks that use the same pool.
	Connections int
	// Observer, if set, is called with what the forwarder does.
	Observer Observer
	// TracerProvider, if set, makes a span of OpenTelemetry for each delivery, or each batch,
	// such as otel.GetTracerProvider(); see package tracing. Without one there are none.
	TracerProvider trace.TracerProvider
	// TraceSettle makes a span for each checkpoint too. Default false.
	TraceSettle bool
	// Logger gets one line an event; default: slog's. Lines about a delivery that has a span
	// are logged with its context; see [tracing.LogHandler].
	Logger *slog.Logger
}

// Store is what a forwarder needs of an outbox.
type Store interface {
	store.Log
	store.Leases
	store.Deliveries
}

// Sink is a destination and how deliveries to it are made.
type Sink struct {
	// Sink makes the deliveries. If it is a sinks.Opener or sinks.Closer, Run
	// opens it before anything else and closes it at its end.
	Sink sinks.Sink
	// Start says where in the log the sink begins if it is new to the outbox: it has no
	// cursors, because it was just added or was forgotten. Default: StartOldest on a log
	// from which nothing was forwarded yet, StartNow on any other. What was passed over
	// is logged, and can be replayed while the log has it.
	Start Start
	// Parallelism bounds the deliveries in flight, or, for a sinks.Batcher, the
	// batches in flight.
	Parallelism Parallelism
	// Retry says when a delivery that failed for the moment is tried again.
	Retry Retry
	// OnDead says what becomes of a key whose delivery is dead.
	OnDead OnDead
	// OnUnknown says how long a delivery is tried again if the sink does not know
	// its type or version.
	OnUnknown OnUnknown
	// Timeout bounds one delivery, or one batch, up to a sixteenth more; default 30 s.
	// What exceeds it counts as a failed attempt. A call that does not come back some
	// seconds later is abandoned: its delivery is tried again, beside it, and it
	// keeps its slot of the threshold.
	Timeout time.Duration
	// Rate bounds how many deliveries begin in a time; default: no bound.
	Rate Rate
	// Breaker says when the sink waits as a whole because its destination fails.
	Breaker Breaker
	// Fairness, if set, is the name of the metadata, such as tenant, whose values
	// share the sink: while several have something to deliver each gets the same
	// number of slots, and one that is alone gets all. It evens out what is in
	// memory, which is a part of a large backlog.
	Fairness string
	// Trace says whether the sink gets to know the trace of a delivery; default TracePass.
	Trace Trace
	// Middleware is put around each delivery, the first one outermost, in
	// Watermill's form. The message's UUID is the notification's id; the sink gets
	// what the innermost hands on as context, metadata and payload. Messages that
	// a middleware returns are dropped. With any, a sinks.Batcher is handed one
	// delivery at a time.
	Middleware []message.HandlerMiddleware
	// Hooks are called with what becomes of deliveries.
	Hooks Hooks
}

// Parallelism is the threshold of deliveries in flight to one sink: Threshold and Above, or
// Adaptive.
type Parallelism = policy.Parallelism

// Adaptive bounds a threshold that follows the latency and the refusals of the destination,
// for each of them where the sink is a sinks.Addresser without Fairness: Min and Max. Max
// is for all destinations together, and what else a threshold bounds is bounded by it.
type Adaptive = policy.Adaptive

// Above is a rule for a backlog larger than the threshold.
type Above = policy.Above

// The two rules. Under both, one key is never in flight twice.
const (
	// AboveBounded keeps N deliveries in flight, however large the backlog. The
	// default.
	AboveBounded = policy.AboveBounded
	// AboveSequential delivers up to N pending ones all at once, and a larger
	// backlog one at a time, until it has shrunk to N.
	AboveSequential = policy.AboveSequential
)

// Start says where a new sink begins: StartOldest, StartNow, StartAt, or by the default
// rule, "". As text it is oldest, now, or a time in the form of RFC 3339.
type Start = store.Start

const (
	// StartOldest is before the oldest row that is still in the log.
	StartOldest = store.StartOldest
	// StartNow is behind all that is committed when the sink's cursors are made.
	StartNow = store.StartNow
)

// StartAt is before the first row, in log order, that occurred at t or later.
func StartAt(t time.Time) Start { return store.StartAt(t) }

// OnDead is a rule for a key after one of its deliveries is dead.
type OnDead = policy.OnDead

// The two rules for a key with a dead delivery.
const (
	// OnDeadContinue goes on with the next one of the key. The default.
	OnDeadContinue = policy.OnDeadContinue
	// OnDeadHalt holds the later ones of the key back until a person acts.
	OnDeadHalt = policy.OnDeadHalt
)

// Retry is exponential backoff with jitter: MaxAttempts, Initial, Multiplier, Max,
// Jitter, MaxAge, and other policies for some Types.
type Retry = policy.Retry

// Breaker says when a sink waits as a whole because its destination fails:
// FailureShare, Among, MaxPause, and Off.
type Breaker = policy.Breaker

// Rate bounds how many deliveries to a sink begin in a time, over all forwarders:
// Events, Per and Burst. The zero value is no bound. As text it is "50/s" or
// "50/s, burst 100", with s, m or h.
type Rate = policy.Rate

// ParseRate reads a rate as it stands in a configuration. The error says what would
// be right.
func ParseRate(text string) (Rate, error) { return policy.ParseRate(text) }

// OnUnknown is for deliveries whose type or version the sink does not know
// (sinks.ClassUnknown): RetryFor.
type OnUnknown = policy.OnUnknown

// Trace is a rule for the trace context of deliveries, W3C's traceparent and tracestate.
type Trace = policy.Trace

// The two rules for the trace context.
const (
	// TracePass passes it on: in metadata, as published, or as the context of the span of a
	// delivery that is made alone; and in the context of Deliver. The default.
	TracePass = policy.TracePass
	// TraceNone takes it out of both.
	TraceNone = policy.TraceNone
)

// Unrouted is a rule for notifications that no route matches.
type Unrouted string

// The two rules for what has no route.
const (
	// UnroutedPark parks them as dead under the reserved sink "_unrouted". The
	// default.
	UnroutedPark Unrouted = "park"
	// UnroutedIgnore passes over them.
	UnroutedIgnore Unrouted = "ignore"
)

// Poll bounds the pause before a look at the log for which nothing woke the
// forwarder: Min after a look that found something new, doubling up to Max while
// looks find nothing.
type Poll struct {
	Min time.Duration // default 1 ms
	Max time.Duration // default 50 ms
}

// Defaults of a Config.
const (
	DefaultLease           = 15 * time.Second
	DefaultShutdownTimeout = 20 * time.Second
	DefaultPollMin         = time.Millisecond
	DefaultPollMax         = 50 * time.Millisecond
	DefaultThreshold       = policy.DefaultThreshold
	DefaultAdaptiveMin     = policy.DefaultAdaptiveMin
	DefaultAdaptiveMax     = policy.DefaultAdaptiveMax
	DefaultTimeout         = 30 * time.Second
	DefaultRetention       = 72 * time.Hour
	DefaultInboxRetention  = 30 * 24 * time.Hour
	DefaultMemory          = 256 << 20
	DefaultConnections     = 8
	DefaultUnknownRetryFor = policy.DefaultUnknownRetryFor
)

// Defaults of a Retry.
const (
	DefaultMaxAttempts = policy.DefaultMaxAttempts
	DefaultInitial     = policy.DefaultInitial
	DefaultMultiplier  = policy.DefaultMultiplier
	DefaultMax         = policy.DefaultMax
	DefaultJitter      = policy.DefaultJitter
)

// Defaults of a Breaker.
const (
	DefaultFailureShare = policy.DefaultFailureShare
	DefaultAmong        = policy.DefaultAmong
	DefaultMaxPause     = policy.DefaultMaxPause
)

const leastMemory = 1 << 20

// KeepForever as a Config's Retention removes nothing: it is longer than
// anything has been stored.
const KeepForever = prune.KeepForever

// WithDefaults fills in what was left out.
func (c Config) WithDefaults() Config {
	if c.Name == "" {
		c.Name, _ = os.Hostname() // it need not have one
	}
	setDefault(&c.Lanes, 1)
	setDefault(&c.Poll.Min, DefaultPollMin)
	setDefault(&c.Poll.Max, max(DefaultPollMax, c.Poll.Min))
	setDefault(&c.Lease, DefaultLease)
	setDefault(&c.ShutdownTimeout, DefaultShutdownTimeout)
	setDefault(&c.Unrouted, UnroutedPark)
	setDefault(&c.Retention, DefaultRetention)
	if c.Retention == KeepForever {
		setDefault(&c.InboxRetention, KeepForever)
	}
	setDefault(&c.InboxRetention, DefaultInboxRetention)
	setDefault(&c.Memory, DefaultMemory)
	setDefault(&c.Connections, DefaultConnections)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	filled := make(map[string]Sink, len(c.Sinks))
	for name, sink := range c.Sinks {
		filled[name] = sink.WithDefaults()
	}
	c.Sinks = filled
	return c
}

// WithDefaults fills in what was left out. Retry.Types stay as they are: see
// [Retry.For].
func (s Sink) WithDefaults() Sink {
	s.Parallelism = s.Parallelism.WithDefaults()
	setDefault(&s.OnDead, OnDeadContinue)
	setDefault(&s.Trace, TracePass)
	s.OnUnknown = s.OnUnknown.WithDefaults()
	setDefault(&s.Timeout, DefaultTimeout)
	s.Retry = s.Retry.WithDefaults()
	s.Breaker = s.Breaker.WithDefaults()
	return s
}

// compile reports all that makes no sense in a configuration with its defaults, by
// the names of the configuration file, and compiles the routes.
func (c Config) compile() (*route.Table, error) {
	p := &policy.Problems{}
	p.Require(c.Store != nil || c.Fleet, "the store is missing")
	p.Require(c.Store == nil || !c.Fleet, "a fleet has no store by itself: its databases come by RunDatabase")
	p.Require(len(c.Routes) > 0, "routes: there is none")
	p.Require(len(c.Sinks) > 0, "sinks: there is none")
	if source := store.SourceOf(c.Store); source != nil {
		p.Require(c.Lanes == 1, "outbox.lanes is %d: the lanes are the partitions of %s", c.Lanes, source.Name())
	}
	p.Require(c.Lanes >= 1 && c.Lanes <= store.Slots, "outbox.lanes is %d: use 1 to %d", c.Lanes, store.Slots)
	p.Require(c.Poll.Min > 0 && c.Poll.Max >= c.Poll.Min, "forwarder.poll is %s to %s: use 0 < min <= max", c.Poll.Min, c.Poll.Max)
	p.Require(c.Lease >= time.Second, "forwarder.lease is %s: use at least 1s", c.Lease)
	p.Require(c.Memory >= leastMemory, "forwarder.memory is %d bytes: use at least %d", c.Memory, leastMemory)
	p.Require(c.Connections >= quota.Least, "forwarder.connections is %d: use at least %d", c.Connections, quota.Least)
	p.Require(c.ShutdownTimeout > 0, "forwarder.shutdown_timeout is %s: use more than 0", c.ShutdownTimeout)
	p.Require(c.Retention > 0, "outbox.retention is %s: use more than 0, or 0 in a file to keep all", c.Retention)
	p.Require(c.Unrouted == UnroutedPark || c.Unrouted == UnroutedIgnore,
		"forwarder.unrouted is %q: use %s or %s", c.Unrouted, UnroutedPark, UnroutedIgnore)
	for _, name := range slices.Sorted(maps.Keys(c.Sinks)) {
		p.Require(name != "" && name[0] != '_', `sinks.%s: names are not empty and do not begin with "_"`, name)
		c.Sinks[name].validate(p, "sinks."+name)
		c.checkInbox(p, name, c.Sinks[name])
		if s := c.Sinks[name]; transactorOf(s) != nil {
			p.Require(len(s.Middleware) == 0 && !s.Hooks.Any(),
				"sinks.%s delivers exactly once: neither middleware nor hooks have a part in its transactions", name)
			p.Require(!c.Fleet, "sinks.%s delivers exactly once, which is from one database: its ledgers do not tell several apart", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Sinks)) {
		if _, absent := c.Sinks[name].Sink.(sinks.Absent); absent && (len(c.Only) == 0 || slices.Contains(c.Only, name)) {
			p.Add(fmt.Errorf("sinks.%s: %w", name, sinks.ErrAbsent))
		}
	}
	for _, name := range c.Only {
		_, known := c.Sinks[name]
		p.Require(known, "only: there is no sink %q", name)
	}
	routes, err := route.New(c.Routes, slices.Collect(maps.Keys(c.Sinks)), c.Types)
	if err != nil {
		p.Add(err)
	} else {
		c.checkHandlers(p, routes)
	}
	return routes, p.Err()
}

// checkInbox refuses an inbox that forgets an id while its delivery may come again.
func (c Config) checkInbox(p *policy.Problems, name string, s Sink) {
	n, ok := s.Sink.(sinks.Noter)
	if !ok || !n.NotesIDs() {
		return
	}
	longest := max(s.Retry.Longest(), s.OnUnknown.RetryFor)
	p.Require(c.InboxRetention >= longest, "outbox.inbox_retention is %s, and sinks.%s tries a delivery again for up to %s: use more",
		c.InboxRetention, name, longest.Round(time.Second))
}

// checkHandlers checks, for each sink that takes only some types, that the routes
// bring it all of these and no others.
func (c Config) checkHandlers(p *policy.Problems, routes *route.Table) {
	for _, name := range slices.Sorted(maps.Keys(c.Sinks)) {
		typed, ok := c.Sinks[name].Sink.(sinks.Typed)
		if !ok {
			continue
		}
		handled, err := typed.HandledTypes()
		if err != nil {
			p.Add(fmt.Errorf("sinks.%s: %w", name, err))
		} else if err := routes.CheckHandlers(name, handled); err != nil {
			p.Add(err)
		}
	}
}

// settings are those that Adjust can change.
func (s Sink) settings() policy.Settings {
	return policy.Settings{Parallelism: s.Parallelism, Retry: s.Retry, OnDead: s.OnDead, OnUnknown: s.OnUnknown,
		Timeout: s.Timeout, Rate: s.Rate, Breaker: s.Breaker, Fairness: s.Fairness}
}

// with are the sink's fields with settings.
func (s Sink) with(p policy.Settings) Sink {
	s.Parallelism, s.Retry, s.OnDead, s.OnUnknown = p.Parallelism, p.Retry, p.OnDead, p.OnUnknown
	s.Timeout, s.Rate, s.Breaker, s.Fairness = p.Timeout, p.Rate, p.Breaker, p.Fairness
	return s
}

func (s Sink) validate(p *policy.Problems, at string) {
	p.Require(s.Sink != nil, "%s: the sink is missing", at)
	p.Require(s.Start.Validate() == nil, "%s.start is %q: use %s, %s, or a time such as 2026-03-01T00:00:00Z", at, s.Start, StartOldest, StartNow)
	p.Check(at+".parallelism", s.Parallelism)
	p.Check(at+".on_dead", s.OnDead)
	p.Check(at+".trace", s.Trace)
	p.Check(at+".on_unknown", s.OnUnknown)
	p.Require(s.Timeout > 0, "%s.timeout is %s: use more than 0", at, s.Timeout)
	p.Check(at+".retry", s.Retry)
	p.Check(at+".rate", s.Rate)
	p.Check(at+".breaker", s.Breaker)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
