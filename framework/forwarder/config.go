package forwarder

import (
	"cmp"
	"context"
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
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
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
	Store Store `yaml:"-"`
	// Fleet means that there is no Store: [Forwarder.RunDatabase] adds and removes databases.
	Fleet bool `yaml:"-"`
	// Routes say which sinks get which types. Package route describes patterns and rules.
	Routes route.Routes `yaml:"-"`
	// Sinks are the sinks by name. Names that begin with "_" are reserved.
	Sinks map[string]Sink `yaml:"-"`

	// Types, if set, are the types that the application publishes. A route that matches none
	// of them is refused, and a type without a route is logged.
	Types *registry.Registry `yaml:"-"`
	// Others are types that other programs publish: routes may name them although Types has them not.
	Others []string `yaml:"-"`
	// Check, if set, is called with each notification before it is delivered, or collected, as it was
	// published. Its error ends the attempt like an error of the sink, with a class of package sinks; the
	// sink is then not called. It must be fast and safe for concurrent use.
	Check func(ctx context.Context, e *notification.Envelope) error `yaml:"-"`
	// Privacy decrypts private values, for each outbox with the keys that it has, and encrypts those of its Rules.
	// Default: none; sinks that need a private value then wait.
	Privacy privacy.Config `yaml:"-"`
	// Name of this forwarder in leases and logs. Default: the host's name.
	//
	// A process id and a random part are added, so names need not be unique.
	Name string `yaml:"name"`
	// Lanes is the number of lanes of each sink, 1 to 1,024; default 1. With several lanes,
	// several forwarders can share one sink. If the cursors in the database have another
	// number, they are cut again; if forwarders disagree, the one that started last decides.
	Lanes int `yaml:"-"`
	// Longest pause between two reads of the log, after a while without anything new; at least 1ms.
	// While there is something new, the pause is a fiftieth of it. Default 50ms.
	//
	// Waking the forwarder ends the pause.
	Poll time.Duration `yaml:"poll" zero:"refused"`
	// How long a forwarder keeps a lane after it last renewed the lease, which is how long a
	// forwarder that is cut off or suspended holds its lanes; at least 1s. Default 15s.
	//
	// It renews the lease every third of that.
	Lease time.Duration `yaml:"lease" zero:"refused"`
	// How long deliveries in flight may take to end when the program stops. Default 20s.
	ShutdownTimeout time.Duration `yaml:"shutdown_timeout" zero:"refused"`
	// What happens to notifications that no route matches: park (as dead, under the sink _unrouted) or
	// ignore. Default park.
	Unrouted Unrouted `yaml:"unrouted" enum:"park,ignore"`
	// Only names the sinks that this forwarder works on; default: all. It works on
	// notifications without a route in any case. Other forwarders work on the other sinks: for
	// those this one only creates the cursors, and keeps the rows that they need.
	Only []string `yaml:"-"`
	// Retention is how long rows stay in the log after OccurredOn, and receipts after the
	// delivery; default 72 h. KeepForever removes nothing. Rows that a sink has not settled
	// stay longer. A store that is not a store.Pruner removes nothing.
	Retention time.Duration `yaml:"-"`
	// InboxRetention is how long the inbox keeps ids (package inbox); default 720 h, or
	// KeepForever if Retention is KeepForever, which removes nothing. It must not be shorter
	// than the longest time for which a sink with an inbox (sinks.Noter) retries a delivery. A
	// delivery that is repeated after this time, for example by a requeue, is handled as new.
	InboxRetention time.Duration `yaml:"-"`
	// Memory bounds what all lanes have read and not settled, in bytes; default 256 MiB, at
	// least 1 MiB. Each lane may exceed it by one page of at most 2,000 rows.
	Memory int `yaml:"-"`
	// Most database connections that this forwarder uses at once, for any number of sinks and lanes, at
	// least 4. The connection that listens is not counted. Default 8.
	//
	// Those of handlers and hooks in the same pool come on top.
	Connections int `yaml:"connections" zero:"refused"`
	// Observer, if set, gets reports of what the forwarder does.
	Observer event.Observer `yaml:"-"`
	// TracerProvider, if set, such as to otel.GetTracerProvider(), makes an OpenTelemetry span
	// for each delivery or batch; see package tracing. Default: no spans.
	TracerProvider trace.TracerProvider `yaml:"-"`
	// Logger gets one line for each event; default: slog's. Lines about a delivery with a span
	// are logged with the span's context; see [tracing.LogHandler].
	Logger *slog.Logger `yaml:"-"`
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
	Sink sinks.Sink `yaml:"-"`
	// Where a new sink starts: oldest (the first row that is still in the log), now (only what is
	// committed later), or a time such as 2026-03-01T00:00:00Z (the first row in log order that occurred
	// at that time or later). A sink that has cursors continues from them. Default: oldest on a log from
	// which nothing was forwarded yet, now on any other.
	//
	// The number of rows passed over is logged; they can be replayed while they are in the log.
	Start Start `yaml:"start"`
	// How many deliveries are in flight at once.
	//
	// For a sinks.Batcher, how many batches.
	Parallelism Parallelism `yaml:"parallelism"`
	// When a delivery that failed temporarily is retried.
	Retry Retry `yaml:"retry"`
	// What happens to later deliveries of a key after one is dead: continue with them, or halt the key
	// until a person acts. Default continue.
	OnDead OnDead `yaml:"on_dead" enum:"continue,halt"`
	// How long one delivery, or one batch, may take. Default 30s.
	//
	// Up to a sixteenth is added to it at random. A delivery that exceeds it counts as a failed attempt.
	// A call that has not returned 2 s later is abandoned: the delivery is tried again while the call
	// still runs, and the call keeps its slot of the threshold.
	Timeout time.Duration `yaml:"timeout" zero:"refused"`
	// Most deliveries per second, minute or hour, over all forwarders: 50/s, 100/m or 1000/h. With burst,
	// as in 50/s, burst 100, that many may go at once after a pause; put the value in quotes if it is
	// inside braces. Default: no limit; burst is as many as in a second.
	Rate Rate `yaml:"rate"`
	// When the breaker opens: all deliveries then wait until a probe succeeds, and nothing is parked. It
	// opens if the destination cannot be reached, if too many attempts fail, if none succeeds for two
	// minutes, or if ten deliveries in a row are refused permanently.
	Breaker Breaker `yaml:"breaker"`
	// Several notifications of a group become one delivery.
	Collect Collect `yaml:"collect"`
	// When deliveries begin, such as from 08:00 to 20:00. Outside of these hours they wait. Default: always.
	Hours Hours `yaml:"hours"`
	// Name of the metadata, such as tenant, whose values share the sink fairly: if several values have
	// pending deliveries, each gets the same number of deliveries in flight. Default: none.
	//
	// It balances the deliveries in memory, which are only a part of a large backlog.
	Fairness string `yaml:"fairness"`
	// How much of a destination's answer, which may repeat private data, is kept in the error of a parked
	// delivery, in a receipt and in the error of a hook: 0 to 4096 bytes. Default 4096; 0 for kind webhooks.
	//
	// See sinks.WithAnswer and notification.Receipt.Cut.
	AnswerBytes *int `yaml:"answer_bytes"`
	// What the sink gets of private values: reveal (decrypted), keep (encrypted), drop (the payload without
	// them) or mask ("***"). Default: reveal for functions, process and email, keep for the others.
	Private sinks.Private `yaml:"private" enum:"reveal,keep,drop,mask"`
	// What the sink gets with private: reveal once a person's data was erased: drop (the payload without it),
	// or dead (nothing: the delivery is dead). Default drop.
	Erased Erased `yaml:"erased" enum:"drop,dead"`
	// Whether the sink gets the trace context (traceparent, tracestate) of a delivery: pass it on, or none
	// to remove it. Default pass.
	Trace Trace `yaml:"trace" enum:"pass,none"`
	// Middleware is Watermill middleware around each delivery, the first one outermost. The
	// message's UUID is the notification's id. The sink gets the context, metadata and payload
	// from the innermost one. Messages that a middleware returns are dropped. With middleware,
	// a sinks.Batcher gets one delivery at a time.
	Middleware []message.HandlerMiddleware `yaml:"-"`
	// Hooks are called with the results of deliveries.
	Hooks Hooks `yaml:"-"`
}

// Names of package settings, for programs with one import.
type (
	Parallelism = settings.Parallelism
	Adaptive    = settings.Adaptive
	Above       = settings.Above
	Retry       = settings.Retry
	OnDead      = settings.OnDead
	Breaker     = settings.Breaker
	Hours       = settings.Hours
	Rate        = settings.Rate
	Trace       = settings.Trace
	Erased      = settings.Erased
	Collect     = settings.Collect
	Keep        = settings.Keep
)

// Values of settings; see their types.
const (
	AboveBounded    = settings.AboveBounded
	AboveSequential = settings.AboveSequential
	OnDeadContinue  = settings.OnDeadContinue
	OnDeadHalt      = settings.OnDeadHalt
	TracePass       = settings.TracePass
	TraceNone       = settings.TraceNone
	ErasedDrop      = settings.ErasedDrop
	ErasedDead      = settings.ErasedDead
	KeepAll         = settings.KeepAll
	KeepNewest      = settings.KeepNewest
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
	DefaultThreshold       = settings.DefaultThreshold
	DefaultTimeout         = 30 * time.Second
	DefaultRetention       = 72 * time.Hour
	DefaultInboxRetention  = 30 * 24 * time.Hour
	DefaultMemory          = 256 << 20
	DefaultConnections     = 8
)

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
	if resident, ok := s.Sink.(Resident); ok {
		s = resident.Defaults(s)
	}
	s.Parallelism = s.Parallelism.WithDefaults()
	setDefault(&s.OnDead, OnDeadContinue)
	setDefault(&s.Trace, TracePass)
	setDefault(&s.Erased, ErasedDrop)
	setDefault(&s.Timeout, DefaultTimeout)
	s.Retry = s.Retry.WithDefaults()
	s.Breaker = s.Breaker.WithDefaults()
	if collector, ok := s.Sink.(sinks.Collector); ok && s.Collect.On() && s.Collect.Keep != KeepNewest && s.Collect.Size == 0 {
		s.Collect.Size = min(settings.DefaultCollectSize, cmp.Or(collector.CollectionSize(), settings.DefaultCollectSize))
	}
	s.Collect = s.Collect.WithDefaults()
	return s
}

// compile checks a configuration with its defaults and compiles the routes. It reports all
// mistakes, by the names of the configuration file.
func (c Config) compile() (*route.Table, error) {
	p := &settings.Problems{}
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
	checkResidents(p, c.Sinks, "", c.Store)
	checkOwnTypes(p, c.Sinks)
	routes, err := c.Table()
	if err != nil {
		p.Add(err)
	} else {
		c.checkHandlers(p, routes)
		c.checkPrivacy(p, routes)
	}
	return routes, p.Err()
}

// checkInbox refuses an inbox retention that ends while a delivery may still be retried.
func (c Config) checkInbox(p *settings.Problems, name string, s Sink) {
	n, ok := s.Sink.(sinks.Noter)
	if !ok || !n.NotesIDs() {
		return
	}
	longest := max(s.Retry.Longest(), settings.UnknownAge)
	p.Require(c.InboxRetention >= longest, "outbox.inbox_retention is %s, but sinks.%s retries a delivery for up to %s: use at least that",
		c.InboxRetention, name, longest.Round(time.Second))
}

// checkHandlers checks, for each sink that takes only some types, that its routes match exactly
// these types.
func (c Config) checkHandlers(p *settings.Problems, routes *route.Table) {
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
		Timeout: s.Timeout, Rate: s.Rate, Breaker: s.Breaker, Fairness: s.Fairness, Hours: s.Hours}
}

// with returns the sink with these settings.
func (s Sink) with(p policy.Settings) Sink {
	s.Parallelism, s.Retry, s.OnDead = p.Parallelism, p.Retry, p.OnDead
	s.Timeout, s.Rate, s.Breaker, s.Fairness, s.Hours = p.Timeout, p.Rate, p.Breaker, p.Fairness, p.Hours
	return s
}

func (s Sink) validate(p *settings.Problems, at string) {
	p.Require(s.Sink != nil, "%s: the sink is missing", at)
	p.Require(s.Start.Validate() == nil, "%s.start is %q: use %s, %s, or a time such as 2026-03-01T00:00:00Z", at, s.Start, StartOldest, StartNow)
	p.Check(at+".parallelism", s.Parallelism)
	p.Check(at+".on_dead", s.OnDead)
	p.Check(at+".trace", s.Trace)
	p.Check(at+".private", settings.Private(s.private()))
	p.Check(at+".erased", s.Erased)
	bytes := s.answerBytes()
	p.Require(bytes >= 0 && bytes <= sinks.MaxAnswer, "%s.answer_bytes is %d: use 0 to %d", at, bytes, sinks.MaxAnswer)
	p.Require(s.Timeout > 0, "%s.timeout is %s: use more than 0", at, s.Timeout)
	p.Check(at+".retry", s.Retry)
	p.Check(at+".rate", s.Rate)
	p.Check(at+".breaker", s.Breaker)
	p.Check(at+".hours", s.Hours)
	p.Check(at+".collect", s.Collect)
	s.checkCollect(p, at+".collect")
}

// checkCollect refuses what cannot be collected.
func (s Sink) checkCollect(p *settings.Problems, at string) {
	if !s.Collect.On() {
		return
	}
	p.Require(transactorOf(s) == nil, "%s: the sink delivers exactly once, in transactions of its lanes, and a collection has notifications of several: leave out either", at)
	if s.Collect.InMemory() {
		return
	}
	p.Require(s.OnDead != OnDeadHalt, "%s: on_dead: halt holds back keys, but not groups of parked notifications: use continue, or keep: newest of keys with a max_wait of at most %s", at, settings.LongestInMemory)
	if s.Collect.Keep != KeepAll {
		return
	}
	collector, ok := s.Sink.(sinks.Collector)
	p.Require(ok || s.Sink == nil, "%s: the sink cannot deliver several notifications as one: use keep: newest, or a kind that can", at)
	p.Require(len(s.Middleware) == 0, "%s: middleware is for single notifications: leave it out, or use keep: newest", at)
	if !ok {
		return
	}
	most := collector.CollectionSize()
	p.Require(most == 0 || s.Collect.Size <= most, "%s.size is %d, but the sink takes at most %d at once: use at most that, or larger batches of the sink", at, s.Collect.Size, most)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
