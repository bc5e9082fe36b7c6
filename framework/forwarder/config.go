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

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/forwarder/internal/prune"
	"github.com/waybill-go/waybill/framework/forwarder/internal/quota"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// Config is the configuration of a forwarder. Routes, Sinks, and either Store or Fleet are
// required. The zero value of every other field means its default.
type Config struct {
	// Store is the outbox. If it is a store.Listener, Run listens for new rows. If it is a
	// store.Reserver whose pool is bounded, Run reserves connections for leases and
	// checkpoints, and warns if the pool is too small.
	Store Store
	// Fleet means that there is no Store: [Forwarder.RunDatabase] adds and removes databases.
	Fleet bool
	// Routes say which sinks get which types. Package route describes patterns and rules.
	Routes route.Routes
	// Sinks are the sinks by name. Names that begin with "_" are reserved.
	Sinks map[string]Sink

	// Types, if set, are the types that the application publishes. A route that matches none
	// of them is refused, and a type without a route is logged.
	Types *registry.Registry
	// Name identifies this forwarder in leases and logs; default: the host's name. A process
	// id and a random part are added, so names need not be unique.
	Name string
	// Lanes is the number of lanes of each sink, 1 to 1,024; default 1. With several lanes,
	// several forwarders can share one sink. If the cursors in the database have another
	// number, they are cut again; if forwarders disagree, the one that started last decides.
	Lanes int
	// Poll is the longest pause between two looks at the log; default 50 ms. A look that found
	// something new is followed by the shortest pause, a fiftieth of Poll, which doubles while
	// looks find nothing. Waking the forwarder ends the pause.
	Poll time.Duration
	// Lease is how long a forwarder keeps a lane without renewing its lease; default 15 s, at
	// least 1 s. It renews the lease every third of that.
	Lease time.Duration
	// ShutdownTimeout is how long deliveries in flight may take to end after Run's context is
	// done; default 20 s.
	ShutdownTimeout time.Duration
	// Unrouted says what happens to notifications that no route matches; default UnroutedPark.
	Unrouted Unrouted
	// Only names the sinks that this forwarder works on; default: all. It works on
	// notifications without a route in any case. Other forwarders work on the other sinks: for
	// those this one only creates the cursors, and keeps the rows that they need.
	Only []string
	// Retention is how long rows stay in the log after OccurredOn, and receipts after the
	// delivery; default 72 h. KeepForever removes nothing. Rows that a sink has not settled
	// stay longer. A store that is not a store.Pruner removes nothing.
	Retention time.Duration
	// InboxRetention is how long the inbox keeps ids (package inbox); default 720 h, or
	// KeepForever if Retention is KeepForever, which removes nothing. It must not be shorter
	// than the longest time for which a sink with an inbox (sinks.Noter) retries a delivery. A
	// delivery that is repeated after this time, for example by a requeue, is handled as new.
	InboxRetention time.Duration
	// Memory bounds what all lanes have read and not settled, in bytes; default 256 MiB, at
	// least 1 MiB. Each lane may exceed it by one page of at most 2,000 rows.
	Memory int
	// Connections is how many statements this forwarder runs at once, and so how many database
	// connections it uses, for any number of sinks and lanes; default 8, at least 4. The
	// connection that listens, and those of handlers and hooks in the same pool, come on top.
	Connections int
	// Observer, if set, is told what the forwarder does.
	Observer event.Observer
	// TracerProvider, if set, such as to otel.GetTracerProvider(), makes an OpenTelemetry span
	// for each delivery or batch; see package tracing. Default: no spans.
	TracerProvider trace.TracerProvider
	// Logger gets one line for each event; default: slog's. Lines about a delivery with a span
	// are logged with the span's context; see [tracing.LogHandler].
	Logger *slog.Logger
}

// Store is what a forwarder needs from an outbox.
type Store interface {
	store.Log
	store.Leases
	store.Deliveries
}

// Sink is a sink and its delivery settings.
type Sink struct {
	// Sink makes the deliveries. If it is a sinks.Opener, Run opens it first; if it is a
	// sinks.Closer, Run closes it last.
	Sink sinks.Sink
	// Start says where in the log a new sink begins: one without cursors, because it was just
	// added or was forgotten. Default: StartOldest if nothing was forwarded from the log yet,
	// otherwise StartNow. The number of rows passed over is logged; they can be replayed while
	// they are in the log.
	Start Start
	// Parallelism bounds the deliveries in flight; for a sinks.Batcher, the batches in flight.
	Parallelism Parallelism
	// Retry says when a delivery that failed temporarily is tried again.
	Retry Retry
	// OnDead says whether deliveries of a key continue after one of them is dead.
	OnDead OnDead
	// Timeout bounds one delivery or one batch; up to a sixteenth is added to it at random.
	// Default 30 s. A delivery that exceeds it counts as a failed attempt. A call that has not
	// returned 2 s later is abandoned: the delivery is tried again while the call still runs,
	// and the call keeps its slot of the threshold.
	Timeout time.Duration
	// Rate bounds how many deliveries begin in a period; default: no bound.
	Rate Rate
	// Breaker says when to pause the whole sink because its destination fails.
	Breaker Breaker
	// Fairness, if set, names metadata, such as tenant, whose values share the sink: values
	// with something to deliver get the same number of slots each, and a single one gets all.
	// It balances the deliveries in memory, which are only a part of a large backlog.
	Fairness string
	// AnswerBytes is how much of a destination's answer (sinks.WithAnswer) the error of a
	// parked delivery quotes, 0 to sinks.MaxAnswer; nil: sinks.MaxAnswer.
	AnswerBytes *int
	// Trace says whether the sink gets the trace context of a delivery; default TracePass.
	Trace Trace
	// Middleware is Watermill middleware around each delivery, the first one outermost. The
	// message's UUID is the notification's id. The sink gets the context, metadata and payload
	// from the innermost one. Messages that a middleware returns are dropped. With middleware,
	// a sinks.Batcher gets one delivery at a time.
	Middleware []message.HandlerMiddleware
	// Hooks are called with the results of deliveries.
	Hooks Hooks
}

// Parallelism is the threshold of deliveries in flight to one sink: either Threshold and
// Above, or Adaptive. Its fields:
//
//   - Threshold int: default 16, at most 65,536; 0 if Adaptive is set
//   - Above Above: the rule while more than Threshold are pending; default AboveBounded
//   - Adaptive Adaptive: if set, the threshold follows the destination
type Parallelism = policy.Parallelism

// Adaptive lets the threshold follow the latency and the refusals of the destination, between
// Min (default 1) and Max (default 512, or Min if that is larger; at most 65,536). If the sink is a sinks.Addresser without Fairness, each destination has its own
// threshold; Max bounds all of them together.
type Adaptive = policy.Adaptive

// Above is the rule for a backlog larger than the threshold.
type Above = policy.Above

// The two rules for a large backlog. Under both, a key is never in flight twice.
const (
	// AboveBounded keeps up to Threshold deliveries in flight, however large the backlog. It is
	// the default.
	AboveBounded = policy.AboveBounded
	// AboveSequential delivers up to Threshold pending deliveries all at once, and a larger
	// backlog one at a time, until it has shrunk to Threshold.
	AboveSequential = policy.AboveSequential
)

// Start says where a new sink begins: StartOldest, StartNow, StartAt, or "" for the default
// rule. As text it is oldest, now, or an RFC 3339 time.
type Start = store.Start

const (
	// StartOldest begins at the oldest row that is still in the log.
	StartOldest = store.StartOldest
	// StartNow begins after all rows committed when the sink's cursors are created.
	StartNow = store.StartNow
)

// StartAt begins at the first row, in log order, that occurred at t or later.
func StartAt(t time.Time) Start { return store.StartAt(t) }

// OnDead is the rule for a key after one of its deliveries is dead.
type OnDead = policy.OnDead

// The two rules for a key with a dead delivery.
const (
	// OnDeadContinue continues with the key's next delivery. It is the default.
	OnDeadContinue = policy.OnDeadContinue
	// OnDeadHalt holds back the key's later deliveries until a person acts.
	OnDeadHalt = policy.OnDeadHalt
)

// Retry is exponential backoff with jitter: attempt n+1 comes Initial * 2^(n-1) after attempt n, at
// most Max. Each pause varies at random by up to a fifth of itself. A delivery is dead when MaxAge or
// MaxAttempts is reached. Its fields:
//
//   - MaxAge time.Duration: how long a delivery is retried: its pauses, before they vary, add
//     up to at most this. What a breaker or a stopped forwarder adds does not count. Default:
//     24 h, or no limit if MaxAttempts is set
//   - MaxAttempts int: how many attempts a delivery has, including the first; default: no limit
//   - Initial time.Duration: default 1 s
//   - Max time.Duration: default 15 min, or Initial if that is more
//   - Types map[string]Retry: other policies for some types, by pattern as in routes; the
//     longest pattern applies, and takes the fields that it leaves unset from this one
type Retry = policy.Retry

// Breaker says when to pause a whole sink because its destination fails. It opens when the
// destination is unavailable ([sinks.Unavailable]), when nearly all recent attempts of different
// keys failed temporarily, when deliveries of two or more keys have failed and none has succeeded
// for two minutes, and when ten deliveries in a row were refused permanently. While it is open,
// single deliveries probe the destination, after pauses that grow from 100 ms to MaxPause, until
// one succeeds; types and keys that did not fail before come first. Its fields:
//
//   - MaxPause time.Duration: default 5 s, at least 100 ms
//   - Off bool: open it only if the destination is unavailable
type Breaker = policy.Breaker

// Rate bounds how many deliveries to a sink begin in a period, over all forwarders. The zero
// value means no bound. As text it is "50/s" or "50/s, burst 100", with s, m or h. Its fields:
//
//   - Events float64: the number of deliveries in each Per
//   - Per time.Duration
//   - Burst int: how many may begin at once after a pause; default: as many as in a second, at
//     least 1
type Rate = policy.Rate

// ParseRate parses the text form of a Rate. Its error shows the valid form.
func ParseRate(text string) (Rate, error) { return policy.ParseRate(text) }

// Trace is the rule for the trace context of deliveries: W3C's traceparent and tracestate.
type Trace = policy.Trace

// The two rules for the trace context.
const (
	// TracePass passes the trace context on, in the metadata and in the context of Deliver.
	// In the metadata it is the published one, or that of the delivery's span if the delivery
	// is made alone. It is the default.
	TracePass = policy.TracePass
	// TraceNone removes it from both.
	TraceNone = policy.TraceNone
)

// Unrouted is the rule for notifications that no route matches.
type Unrouted string

// The two rules for notifications without a route.
const (
	// UnroutedPark parks them as dead under the reserved sink "_unrouted". It is the default.
	UnroutedPark Unrouted = "park"
	// UnroutedIgnore skips them.
	UnroutedIgnore Unrouted = "ignore"
)

// Defaults of a Config.
const (
	DefaultLease           = 15 * time.Second
	DefaultShutdownTimeout = 20 * time.Second
	DefaultPoll            = 50 * time.Millisecond
	DefaultThreshold       = policy.DefaultThreshold
	DefaultAdaptiveMin     = policy.DefaultAdaptiveMin
	DefaultAdaptiveMax     = policy.DefaultAdaptiveMax
	DefaultTimeout         = 30 * time.Second
	DefaultRetention       = 72 * time.Hour
	DefaultInboxRetention  = 30 * 24 * time.Hour
	DefaultMemory          = 256 << 20
	DefaultConnections     = 8
)

// Defaults of a Retry.
const (
	DefaultMaxAge  = policy.DefaultMaxAge
	DefaultInitial = policy.DefaultInitial
	DefaultMax     = policy.DefaultMax
)

// DefaultMaxPause is the default of Breaker.MaxPause.
const DefaultMaxPause = policy.DefaultMaxPause

const leastMemory = 1 << 20

const (
	leastPoll = time.Millisecond
	// pollShare is by how much the shortest pause between two looks is shorter than the longest: at the
	// default, about as long as a look takes.
	pollShare = 50
)

// KeepForever as a retention removes nothing: it is longer than anything has been stored.
const KeepForever = prune.KeepForever

// WithDefaults returns the configuration with the defaults of unset fields.
func (c Config) WithDefaults() Config {
	if c.Name == "" {
		c.Name, _ = os.Hostname() // stays empty if the host has no name
	}
	setDefault(&c.Lanes, 1)
	setDefault(&c.Poll, DefaultPoll)
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

// WithDefaults returns the sink with the defaults of unset fields. Retry.Types stay as they
// are: see [Retry.For].
func (s Sink) WithDefaults() Sink {
	s.Parallelism = s.Parallelism.WithDefaults()
	setDefault(&s.OnDead, OnDeadContinue)
	setDefault(&s.Trace, TracePass)
	setDefault(&s.Timeout, DefaultTimeout)
	s.Retry = s.Retry.WithDefaults()
	s.Breaker = s.Breaker.WithDefaults()
	return s
}

// compile checks a configuration with its defaults and compiles the routes. It reports all
// mistakes, by the names of the configuration file.
func (c Config) compile() (*route.Table, error) {
	p := &policy.Problems{}
	p.Require(c.Store != nil || c.Fleet, "the store is missing")
	p.Require(c.Store == nil || !c.Fleet, "a fleet has no store: its databases come with RunDatabase")
	p.Require(len(c.Routes) > 0, "routes: there are none")
	p.Require(len(c.Sinks) > 0, "sinks: there are none")
	if source := store.SourceOf(c.Store); source != nil {
		p.Require(c.Lanes == 1, "outbox.lanes is %d: the lanes are the partitions of %s", c.Lanes, source.Name())
	}
	p.Require(c.Lanes >= 1 && c.Lanes <= store.Slots, "outbox.lanes is %d: use 1 to %d", c.Lanes, store.Slots)
	p.Require(c.Poll >= leastPoll, "forwarder.poll is %s: use at least %s", c.Poll, leastPoll)
	p.Require(c.Lease >= time.Second, "forwarder.lease is %s: use at least 1s", c.Lease)
	p.Require(c.Memory >= leastMemory, "forwarder.memory is %d bytes: use at least %d", c.Memory, leastMemory)
	p.Require(c.Connections >= quota.Least, "forwarder.connections is %d: use at least %d", c.Connections, quota.Least)
	p.Require(c.ShutdownTimeout > 0, "forwarder.shutdown_timeout is %s: use more than 0", c.ShutdownTimeout)
	p.Require(c.Retention > 0, "outbox.retention is %s: use more than 0, or 0 in a file to keep all", c.Retention)
	p.Require(c.Unrouted == UnroutedPark || c.Unrouted == UnroutedIgnore,
		"forwarder.unrouted is %q: use %s or %s", c.Unrouted, UnroutedPark, UnroutedIgnore)
	for _, name := range slices.Sorted(maps.Keys(c.Sinks)) {
		p.Require(name != "" && name[0] != '_', `sinks.%s: a name must not be empty or begin with "_"`, name)
		c.Sinks[name].validate(p, "sinks."+name)
		c.checkInbox(p, name, c.Sinks[name])
		if s := c.Sinks[name]; transactorOf(s) != nil {
			p.Require(len(s.Middleware) == 0 && !s.Hooks.Any(),
				"sinks.%s delivers exactly once: middleware and hooks cannot take part in its transactions", name)
			p.Require(!c.Fleet, "sinks.%s delivers exactly once, which works with one database only: its ledger does not distinguish several", name)
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

// checkInbox refuses an inbox retention that ends while a delivery may still be retried.
func (c Config) checkInbox(p *policy.Problems, name string, s Sink) {
	n, ok := s.Sink.(sinks.Noter)
	if !ok || !n.NotesIDs() {
		return
	}
	longest := max(s.Retry.Longest(), policy.UnknownAge)
	p.Require(c.InboxRetention >= longest, "outbox.inbox_retention is %s, but sinks.%s retries a delivery for up to %s: use at least that",
		c.InboxRetention, name, longest.Round(time.Second))
}

// checkHandlers checks, for each sink that takes only some types, that its routes match exactly
// these types.
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

// answerBytes returns AnswerBytes or its default.
func (s Sink) answerBytes() int {
	if s.AnswerBytes == nil {
		return sinks.MaxAnswer
	}
	return *s.AnswerBytes
}

// settings returns the settings that Adjust can change.
func (s Sink) settings() policy.Settings {
	return policy.Settings{Parallelism: s.Parallelism, Retry: s.Retry, OnDead: s.OnDead,
		Timeout: s.Timeout, Rate: s.Rate, Breaker: s.Breaker, Fairness: s.Fairness}
}

// with returns the sink with these settings.
func (s Sink) with(p policy.Settings) Sink {
	s.Parallelism, s.Retry, s.OnDead = p.Parallelism, p.Retry, p.OnDead
	s.Timeout, s.Rate, s.Breaker, s.Fairness = p.Timeout, p.Rate, p.Breaker, p.Fairness
	return s
}

func (s Sink) validate(p *policy.Problems, at string) {
	p.Require(s.Sink != nil, "%s: the sink is missing", at)
	p.Require(s.Start.Validate() == nil, "%s.start is %q: use %s, %s, or a time such as 2026-03-01T00:00:00Z", at, s.Start, StartOldest, StartNow)
	p.Check(at+".parallelism", s.Parallelism)
	p.Check(at+".on_dead", s.OnDead)
	p.Check(at+".trace", s.Trace)
	bytes := s.answerBytes()
	p.Require(bytes >= 0 && bytes <= sinks.MaxAnswer, "%s.answer_bytes is %d: use 0 to %d", at, bytes, sinks.MaxAnswer)
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
