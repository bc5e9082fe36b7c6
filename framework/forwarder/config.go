package forwarder

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// Config is what a forwarder works with. Store, Routes and Sinks are required;
// the zero value of every other field takes the default that it names.
type Config struct {
	// Store is the outbox. If it is a store.Listener, Run listens.
	Store store.Store
	// Routes say which sinks get which types; package route tells what a pattern is,
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
	// can share one sink; 1 to 1,024, default 1. Cursors that are cut otherwise
	// are cut anew: of several forwarders the one that starts last decides.
	Lanes int
	// Poll bounds the pause between two looks at the log. Whatever wakes the
	// forwarder ends the pause.
	Poll Poll
	// Lease is how long a lane stays with a forwarder that is not heard of;
	// default 15 s, at least 1 s. It is renewed after a third of that.
	Lease time.Duration
	// ShutdownTimeout is how long deliveries in flight may take to end once Run's
	// context is done; default 20 s.
	ShutdownTimeout time.Duration
	// Unrouted says what becomes of notifications that no route matches.
	Unrouted Unrouted
	// Retention is how long after they occurred rows stay in the log, and receipts
	// after their delivery; default 72 h. KeepForever keeps all. Rows that a sink
	// has not settled stay longer. A store that is no store.Pruner keeps all.
	Retention time.Duration
	// Logger gets one line an event; default: slog's.
	Logger *slog.Logger
}

// Sink is a destination and how deliveries to it are made.
type Sink struct {
	// Sink makes the deliveries. If it is a sinks.Opener or sinks.Closer, Run
	// opens it before anything else and closes it at its end.
	Sink sinks.Sink
	// Parallelism bounds the deliveries in flight; of a sinks.Batcher the batches.
	Parallelism Parallelism
	// Retry says when a delivery that failed for the moment is tried again.
	Retry Retry
	// OnDead says what becomes of a key whose delivery is dead.
	OnDead OnDead
	// OnUnknown says how long a delivery is tried again whose type or version the
	// sink does not know.
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
	// Middleware is put around each delivery, the first one outermost, in
	// Watermill's form. The message's UUID is the notification's id; the sink gets
	// what the innermost hands on as context, metadata and payload. Messages that
	// a middleware returns are dropped. With any, a sinks.Batcher is handed one
	// delivery at a time.
	Middleware []message.HandlerMiddleware
	// Hooks are told what becomes of deliveries.
	Hooks Hooks
}

// Hooks are called with what becomes of deliveries, in the transaction of the
// checkpoint that writes it down: their effects commit with it, or not at all. A
// user row's status becomes "sent" exactly when its delivery is settled.
//
// A hook must be quick; its context ends after a third of the lease. While it fails,
// its sink's lane stands still and the same deliveries are handed to it again;
// they are not delivered again. After a crash a delivery that is repeated
// comes to it again as well.
type Hooks struct {
	// Delivered is called with what the sink has taken.
	Delivered func(ctx context.Context, tx *sql.Tx, delivered []Delivered) error
	// Parked is called with what is retrying, scheduled or blocked from now on; what
	// fails again comes again.
	Parked func(ctx context.Context, tx *sql.Tx, parked []Parked) error
	// Dead is called with what nobody tries any more.
	Dead func(ctx context.Context, tx *sql.Tx, dead []Parked) error
}

// Parked is a delivery that could not be made.
type Parked struct {
	*notification.Delivery
	State store.State
	// DueAt is when it is tried next; zero for blocked and dead ones.
	DueAt time.Time
	// Error is what the last attempt came to; "" if there was none.
	Error string
}

// Delivered is a delivery that a sink has taken.
type Delivered struct {
	*notification.Delivery
	Receipt notification.Receipt
}

// Parallelism is the threshold of deliveries in flight to one sink.
type Parallelism struct {
	// Threshold is N; default 16. At most 65,536.
	Threshold int
	// Above says what happens while more than N deliveries are pending.
	Above Above
}

// Above is a rule for a backlog larger than the threshold.
type Above string

// The two rules. Under both, one key is never in flight twice.
const (
	// AboveBounded keeps N deliveries in flight, however large the backlog. The
	// default.
	AboveBounded Above = "bounded"
	// AboveSequential delivers up to N pending ones all at once, and a larger
	// backlog one at a time, until it has shrunk to N.
	AboveSequential Above = "sequential"
)

// OnDead is a rule for a key after one of its deliveries is dead.
type OnDead string

// The two rules for a key with a dead delivery.
const (
	// OnDeadContinue goes on with the next one of the key. The default.
	OnDeadContinue OnDead = "continue"
	// OnDeadHalt holds the later ones of the key back until a person acts.
	OnDeadHalt OnDead = "halt"
)

// OnUnknown is for deliveries whose type or version the sink does not know
// (sinks.ClassUnknown). While a rolling deploy is under way, an old process reads what
// a new one publishes, and must not kill it.
type OnUnknown struct {
	// RetryFor is how long such a delivery is tried again, counted from the moment
	// at which it was first parked; it is dead then. The pause grows with that age,
	// from Retry.Initial to 1 minute. Attempts on which the type was unknown do not
	// count against Retry.MaxAttempts. Default 24 h.
	RetryFor time.Duration
}

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

// Poll bounds the pause between two looks at the log that nobody woke the forwarder
// for: Min after one that found something new, doubling up to Max while they find
// nothing.
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
	DefaultThreshold       = 16
	DefaultTimeout         = 30 * time.Second
	DefaultRetention       = 72 * time.Hour
	DefaultUnknownRetryFor = 24 * time.Hour
)

// KeepForever as a Config's Retention removes nothing: it is longer than
// anything has been stored.
const KeepForever time.Duration = math.MaxInt64

const maxThreshold = 1 << 16

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
	setDefault(&s.Parallelism.Threshold, DefaultThreshold)
	setDefault(&s.Parallelism.Above, AboveBounded)
	setDefault(&s.OnDead, OnDeadContinue)
	setDefault(&s.OnUnknown.RetryFor, DefaultUnknownRetryFor)
	setDefault(&s.Timeout, DefaultTimeout)
	s.Retry = s.Retry.withDefaults()
	s.Breaker = s.Breaker.withDefaults()
	return s
}

// compile reports all that makes no sense in a configuration with its defaults, by
// the names of the configuration file, and compiles the routes.
func (c Config) compile() (*route.Table, error) {
	p := &problems{}
	p.require(c.Store != nil, "the store is missing")
	p.require(len(c.Routes) > 0, "routes: there is none")
	p.require(len(c.Sinks) > 0, "sinks: there is none")
	p.require(c.Lanes >= 1 && c.Lanes <= store.Slots, "outbox.lanes is %d: use 1 to %d", c.Lanes, store.Slots)
	p.require(c.Poll.Min > 0 && c.Poll.Max >= c.Poll.Min, "forwarder.poll is %s to %s: use 0 < min <= max", c.Poll.Min, c.Poll.Max)
	p.require(c.Lease >= time.Second, "forwarder.lease is %s: use at least 1s", c.Lease)
	p.require(c.ShutdownTimeout > 0, "forwarder.shutdown_timeout is %s: use more than 0", c.ShutdownTimeout)
	p.require(c.Retention > 0, "outbox.retention is %s: use more than 0, or 0 in a file to keep all", c.Retention)
	p.require(c.Unrouted == UnroutedPark || c.Unrouted == UnroutedIgnore,
		"forwarder.unrouted is %q: use %s or %s", c.Unrouted, UnroutedPark, UnroutedIgnore)
	for _, name := range slices.Sorted(maps.Keys(c.Sinks)) {
		p.require(name != "" && name[0] != '_', `sinks.%s: names are not empty and do not begin with "_"`, name)
		c.Sinks[name].validate(p, "sinks."+name)
	}
	routes, err := route.New(c.Routes, slices.Collect(maps.Keys(c.Sinks)), c.Types)
	if err != nil {
		p.found = append(p.found, fmt.Errorf("%w: %w", ErrConfig, err))
	} else {
		c.checkHandlers(p, routes)
	}
	return routes, p.err()
}

// checkHandlers asks the sinks that take some types only whether the routes bring
// these, all of them and no others.
func (c Config) checkHandlers(p *problems, routes *route.Table) {
	for _, name := range slices.Sorted(maps.Keys(c.Sinks)) {
		typed, ok := c.Sinks[name].Sink.(sinks.Typed)
		if !ok {
			continue
		}
		handled, err := typed.HandledTypes()
		if err != nil {
			p.require(false, "sinks.%s: %w", name, err)
		} else if err := routes.CheckHandlers(name, handled); err != nil {
			p.require(false, "%w", err)
		}
	}
}

func (s Sink) validate(p *problems, at string) {
	p.require(s.Sink != nil, "%s: the sink is missing", at)
	n := s.Parallelism.Threshold
	p.require(n >= 1 && n <= maxThreshold, "%s.parallelism.threshold is %d: use 1 to %d", at, n, maxThreshold)
	p.require(s.Parallelism.Above == AboveBounded || s.Parallelism.Above == AboveSequential,
		"%s.parallelism.above is %q: use %s or %s", at, s.Parallelism.Above, AboveBounded, AboveSequential)
	p.require(s.OnDead == OnDeadContinue || s.OnDead == OnDeadHalt,
		"%s.on_dead is %q: use %s or %s", at, s.OnDead, OnDeadContinue, OnDeadHalt)
	p.require(s.OnUnknown.RetryFor > 0, "%s.on_unknown.retry_for is %s: use more than 0", at, s.OnUnknown.RetryFor)
	p.require(s.Timeout > 0, "%s.timeout is %s: use more than 0", at, s.Timeout)
	s.Retry.validate(p, at+".retry")
	s.Rate.validate(p, at+".rate")
	s.Breaker.validate(p, at+".breaker")
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// problems gathers what is wrong with a configuration.
type problems struct{ found []error }

func (p *problems) require(ok bool, format string, args ...any) {
	if !ok {
		p.found = append(p.found, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...))
	}
}

func (p *problems) err() error { return errors.Join(p.found...) }
