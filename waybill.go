// Package waybill is a transactional outbox in one import: register notification types,
// declare who gets them, publish in the application's own transaction, and run.
//
//	o := waybill.Postgres(db, waybill.PostgresConfig{})
//	waybill.Register[OrderPlaced](o, "order.placed", waybill.Key(OrderPlaced.ID))
//	waybill.Handle(o, "warehouse", func(ctx context.Context, n OrderPlaced) error { … })
//	err := o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
//		… // your own statements
//		return o.Publish(ctx, tx, OrderPlaced{…})
//	})
//	err = o.Run(ctx)
//
// The package only combines the packages below it, and everything it does can be done with
// them directly: framework/outbox publishes, framework/forwarder delivers, registry holds the
// types, and sinks holds the destinations.
package waybill

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/alerts"
	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/dashboard"
	"github.com/waybill-go/waybill/framework/doctor"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/inbox"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/observe"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/schedule"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/watch"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
)

// Errors of an Outbox.
var (
	// ErrNotOpen: a method that needs an open outbox, such as Publish, was called before
	// Open, InTx, InUnit or Run.
	ErrNotOpen = errors.New("the outbox is not open: call Open first (InTx, InUnit and Run call it themselves)")
	// ErrOpen: Register, Handle and the other declarations panic with it after Open.
	ErrOpen = errors.New("the outbox is already open: declare types, handlers, sinks, routes and schedules before Open, InTx, InUnit and Run")
	// ErrDuplicate: a notification with the same uniqueness key was already published; see
	// [Unique].
	ErrDuplicate = outbox.ErrDuplicate
)

// Aliases of names in other packages, for programs with one import.
type (
	PostgresConfig = postgres.Config
	SQLiteConfig   = sqlite.Config
	MySQLConfig    = mysql.Config
	Config         = forwarder.Config
	Sink           = forwarder.Sink
	Rule           = route.Rule
	Envelope       = notification.Envelope
	Delivery       = notification.Delivery
	Collection     = sinks.Collection
	Receipt        = notification.Receipt
	TypeOption     = registry.TypeOption
	Description    = registry.Description
	PublishOption  = outbox.Option
	Unit           = outbox.Unit
	Recorder       = outbox.Recorder
	Schedule       = schedule.Schedule
	When           = schedule.When
	Alerts         = settings.Alerts
)

// Outbox is the outbox of one database, with the application's types, sinks and routes.
// Declare all of them first, from one goroutine. After Open it is safe for concurrent use.
type Outbox struct {
	// Config configures the forwarder: lanes, retention, observer and so on. Open fills in
	// Store, Types, Privacy, Sinks and Routes from the declarations. The publisher uses its
	// TracerProvider too, unless Publishing sets one. Set Config before Open.
	Config Config
	// Privacy encrypts private values of types with [Private], and decrypts them for the sinks that get
	// them; see package privacy. Set it before Open, which creates the first key.
	Privacy privacy.Config
	// Publishing configures the publisher: metadata from the context, the payload limit and
	// so on. Map and Ignore add to its Events. Set it before Open.
	Publishing outbox.Config

	db      *sql.DB
	migrate func(ctx context.Context) error
	connect func(ctx context.Context) (Store, error)
	subject doctor.Subject // for the dashboard

	watch     watcher // nil if nothing observes the outbox
	types     *registry.Registry
	sinks     map[string]*declared
	routes    route.Routes
	schedules []*Schedule
	alerts    Alerts
	mistakes  []error

	opening sync.Mutex
	opened  atomic.Pointer[opened] // nil before Open
	ran     atomic.Bool
}

// Declaring is what types and handlers are declared for: an *Outbox, or a type that embeds one, such as
// *waybillpgx.Outbox. No other type implements it.
type Declaring interface {
	// declaring returns the outbox. It panics if that is already open.
	declaring() *Outbox
}

var _ Declaring = (*Outbox)(nil)

// Store is an outbox in any of the databases.
type Store interface {
	webhooks.Store
	store.Inbox
	store.Schedules
	store.PrivateKeys
}

// opened is what Open creates.
type opened struct {
	store     Store
	publisher *outbox.Publisher
	keyring   *privacy.Keyring     // nil without Privacy
	forwarder *forwarder.Forwarder // nil without sinks
	scheduler *schedule.Scheduler  // nil without schedules
	judge     *alerts.Judge        // nil without alerts
	endpoints *webhooks.Endpoints  // nil without a sink for them
}

// declared is a sink, or the handlers that become one.
type declared struct {
	Sink
	from     sinks.Builder // builds the sink; nil if there are handlers, or the sink was ready
	handlers []function.Handler
	handled  []func(*registry.Registry) ([]string, error) // return the type names of the handlers
	patterns []string                                     // routed to the sink, unless a rule of Route has the same pattern and sink
	inTx     *inbox.Config                                // where handlers of HandleTx and HandleIn write; nil: others
}

// Postgres returns the outbox of a PostgreSQL database. The application keeps and closes db,
// which is best a handle of lib/pq from [postgres.OpenDB]. A program that uses pgx makes its outbox with
// the module framework/waybillpgx: waybillpgx.New(pool, c).
func Postgres(db *sql.DB, c PostgresConfig) *Outbox {
	return newOutbox(doctor.Subject{DB: db, PostgreSQL: &c, Address: postgres.AddressOf(db)},
		func(ctx context.Context) error { _, err := postgres.Migrate(ctx, db, c); return err },
		func(ctx context.Context) (Store, error) { return postgres.Open(ctx, db, c) },
	)
}

// SQLite returns the outbox of an SQLite database. The application keeps and closes db, which
// comes from [sqlite.OpenDB].
func SQLite(db *sql.DB, c SQLiteConfig) *Outbox {
	return newOutbox(doctor.Subject{DB: db, SQLite: &c},
		func(ctx context.Context) error { _, err := sqlite.Migrate(ctx, db, c); return err },
		func(ctx context.Context) (Store, error) { return sqlite.Open(ctx, db, c) },
	)
}

// MySQL returns the outbox of a MySQL or MariaDB database. The application keeps and closes
// db, which comes from [mysql.OpenDB].
func MySQL(db *sql.DB, c MySQLConfig) *Outbox {
	return newOutbox(doctor.Subject{DB: db, MySQL: &c},
		func(ctx context.Context) error { _, err := mysql.Migrate(ctx, db, c); return err },
		func(ctx context.Context) (Store, error) { return mysql.Open(ctx, db, c) },
	)
}

func newOutbox(in doctor.Subject, migrate func(context.Context) error, connect func(context.Context) (Store, error)) *Outbox {
	return &Outbox{
		db: in.DB, subject: in, migrate: migrate, connect: connect,
		types: registry.New(), sinks: make(map[string]*declared), routes: make(route.Routes),
	}
}

// Register declares a notification type by its stable name; see [registry.Register]. T and *T are the same type
// for Register, Handle and Publish, and each may name either; registering both is an error. Open returns
// the errors.
func Register[T any](o Declaring, name string, options ...TypeOption) {
	in := o.declaring()
	in.note(registry.Register[T](in.types, name, options...))
}

// Map declares what is published in place of each domain event of type E; see [outbox.Map].
func Map[E any](o Declaring, to func(ctx context.Context, event E) ([]any, error)) {
	in := o.declaring()
	in.Publishing.Events = append(in.Publishing.Events, outbox.Map(to))
}

// Ignore declares that domain events of type E are not published; see [outbox.Ignore].
func Ignore[E any](o Declaring) {
	in := o.declaring()
	in.Publishing.Events = append(in.Publishing.Events, outbox.Ignore[E]())
}

// Handle declares a function that handles the notifications of type T in the named sink,
// and routes the type to that sink. Several types may share a sink, and with it its
// parallelism, retries and order; see [function.Mux]. The returned settings of the sink may
// be changed until Open:
//
//	waybill.Handle(o, "mail", send).Retry.MaxAttempts = 20
func Handle[T any](o Declaring, sink string, handle func(ctx context.Context, n T) error) *Sink {
	return handler[T](o, sink, function.On(handle), nil)
}

// HandleMany declares a function that handles several notifications of type T at once, such as all
// comments that go into one digest. The sink's setting collect says which notifications come
// together, and when; without it, each comes alone. If T is an interface, the function handles all
// registered types that implement it, which are all routed to the sink; see [function.OnMany].
func HandleMany[T any](o Declaring, sink string, handle func(ctx context.Context, all []T) error) *Sink {
	return handler[T](o, sink, function.OnMany(handle), nil)
}

// HandleTx is [Handle] for a function whose effects happen once, even where a delivery is
// repeated: what it writes and publishes in tx commits together with the notification's id
// in the inbox; see [inbox.HandleTx].
func HandleTx[T any](o Declaring, sink string, handle func(ctx context.Context, tx *sql.Tx, n T) error) *Sink {
	in := o.declaring()
	return handler[T](in, sink, inbox.OnTx(handle), &inbox.Config{DB: in.db})
}

// HandleIn is [HandleTx] for other transactions than those of the outbox's database handle, such as
// inbox.Pgx(pool, pgx.TxOptions{}). They must be in the same database. If functions of one sink name
// different ones, those of the last apply to all.
func HandleIn[T, Tx any](o Declaring, sink string, in inbox.Transactions, handle func(ctx context.Context, tx Tx, n T) error) *Sink {
	return handler[T](o, sink, inbox.OnTx(handle), &inbox.Config{Pgx: in})
}

func handler[T any](o Declaring, sink string, h function.Handler, inTx *inbox.Config) *Sink {
	in := o.declaring()
	d := in.sink(sink)
	if d.Sink.Sink != nil || d.from != nil {
		in.note(fmt.Errorf("sink %q already has a destination and cannot have a handler too: use two names", sink))
	}
	if len(d.handlers) > 0 && (d.inTx == nil) != (inTx == nil) {
		in.note(fmt.Errorf("sink %q has handlers from both Handle and HandleTx: use two names", sink))
	}
	if d.inTx != nil && inTx != nil && d.inTx.DB != inTx.DB {
		in.note(fmt.Errorf("sink %q has handlers in transactions of both database/sql and pgx: use two names", sink))
	}
	d.handlers, d.inTx = append(d.handlers, h), inTx
	d.handled = append(d.handled, registry.NamesOf[T])
	return &d.Sink
}

// Deliver declares a sink and routes the patterns to it. A pattern is a type, the beginning
// of types such as order.*, or *. Without patterns, nothing is routed to the sink; use Route,
// which also takes conditions.
//
// The destination is the configuration of a kind, such as email.Config, which is a [sinks.Builder], or a
// [sinks.Sink] that is ready. Open builds the sink of a configuration, with its name, the outbox's types and
// their contracts, and Config.Logger; it returns all mistakes, each with the sink's name and the key:
//
//	o.Deliver("mail", email.Config{SMTP: "smtp://mail.example", From: "shop@example.com", Templates: "mails"}, "order.*")
func (o *Outbox) Deliver(sink string, to any, patterns ...string) *Sink {
	d := o.sink(sink)
	if d.Sink.Sink != nil || d.from != nil || len(d.handlers) > 0 {
		o.note(fmt.Errorf("sink %q is declared twice: use two names", sink))
	}
	d.patterns = patterns
	switch to := to.(type) {
	case sinks.Sink:
		d.Sink.Sink = to
	case sinks.Builder:
		d.from = to
	default:
		o.note(fmt.Errorf("sink %q: %T is neither a sinks.Sink nor the configuration of one: use a type with the method Deliver or Build", sink, to))
	}
	return &d.Sink
}

// Route declares a rule: notifications that match the pattern go to a sink, under a condition
// or with another payload. It replaces what Handle and Deliver route for the same pattern and
// sink.
func (o *Outbox) Route(pattern string, rule Rule) {
	o.declare()
	o.routes[pattern] = append(o.routes[pattern], rule)
}

// Schedule declares that a notification is published by the clock. At each tick of when, one
// of all processes that run the schedule publishes the notification that the function returns
// for the tick; see [schedule.Schedule]. Its Missed may be changed until Open:
//
//	o.Schedule("daily-report", waybill.Cron("0 9 * * MON-FRI", "Europe/Berlin"),
//		func(ctx context.Context, tick time.Time) (any, error) { return ReportDue{tick}, nil })
func (o *Outbox) Schedule(name string, when When, publish func(ctx context.Context, tick time.Time) (any, error)) *Schedule {
	o.declare()
	s := &Schedule{Name: name, When: when, Make: publish}
	o.schedules = append(o.schedules, s)
	return s
}

// Alerts declares that the outbox publishes alerts of its own troubles, such as dead deliveries, to the sinks of
// a.To, which are declared like any other; see package alerts. A sink of functions handles [alerts.Raised] and
// [alerts.Cleared]. A second call replaces the first.
//
//	o.Alerts(waybill.Alerts{To: waybill.To("ops-mail", "chat"), Every: 24 * time.Hour})
func (o *Outbox) Alerts(a Alerts) {
	o.declare()
	if !o.alerts.On() {
		o.note(alerts.Register(o.types))
	}
	o.note(a.Validate())
	o.alerts = a
}

// To returns rules that send everything to the given sinks; see [route.To].
func To(sinks ...string) []Rule { return route.To(sinks...) }

func (o *Outbox) sink(name string) *declared {
	o.declare()
	if o.sinks[name] == nil {
		o.sinks[name] = new(declared)
	}
	return o.sinks[name]
}

func (o *Outbox) declaring() *Outbox {
	o.declare()
	return o
}

// declare panics if the outbox is already open.
func (o *Outbox) declare() {
	if o.opened.Load() != nil {
		panic(ErrOpen) // a mistake in the program; an error of Open would hide it until the next start
	}
}

func (o *Outbox) note(err error) {
	if err != nil {
		o.mistakes = append(o.mistakes, err)
	}
}

// Migrate creates and upgrades the tables; see [postgres.Migrate],
// [sqlite.Migrate] and [mysql.Migrate].
func (o *Outbox) Migrate(ctx context.Context) error { return o.migrate(ctx) }

// Open checks all declarations and connects to the outbox, which must be migrated; otherwise
// it fails with [store.ErrNotMigrated]. It reports mistakes together: first those of single
// declarations, then, once the database answers, those of routes, settings and schedules. After
// an error it may be called again; after a success it does nothing more. It delivers nothing:
// Run does. It does not wait for a database that is down.
func (o *Outbox) Open(ctx context.Context) error {
	o.opening.Lock()
	defer o.opening.Unlock()
	if o.opened.Load() != nil {
		return nil
	}
	if err := errors.Join(append(slices.Clone(o.mistakes), o.routeHandlers(), o.buildSinks())...); err != nil {
		return err
	}
	s, err := o.connect(ctx)
	if err != nil {
		return err
	}
	made := &opened{store: s}
	publishing := o.Publishing
	if publishing.TracerProvider == nil {
		publishing.TracerProvider = o.Config.TracerProvider
	}
	if o.watch != nil {
		o.watch.Count(&publishing)
	}
	also := publishing.Wake
	publishing.Wake = func() {
		if made.forwarder != nil {
			made.forwarder.Wake()
		}
		if also != nil {
			also()
		}
	}
	if o.Privacy.Master != nil {
		if made.keyring, err = privacy.New(s, o.Privacy); err == nil {
			err = made.keyring.Prepare(ctx)
		}
		if err != nil {
			return err
		}
		publishing.Privacy = made.keyring
	}
	if made.publisher, err = outbox.New(o.types, s, publishing); err != nil {
		return err
	}
	var refused []error
	if len(o.sinks) > 0 {
		if made.forwarder, err = forwarder.New(o.forwarding(made)); err != nil {
			refused = append(refused, err)
		}
	}
	if len(o.schedules) > 0 {
		list := make([]Schedule, len(o.schedules))
		for i, s := range o.schedules {
			list[i] = *s
		}
		if made.scheduler, err = schedule.New(schedule.Config{Store: s, DB: o.db, Publisher: made.publisher, Logger: o.Config.Logger}, list...); err != nil {
			refused = append(refused, err)
		}
	}
	hooked := ""
	for name, d := range o.sinks {
		if hooks, ok := d.Sink.Sink.(*webhooks.Sink); ok { // one at most, otherwise the forwarder refuses them
			hooked = name
			if made.endpoints, err = hooks.Endpoints(s, name); err != nil {
				refused = append(refused, err)
			}
		}
	}
	if o.alerts.On() && len(o.sinks) == 0 {
		refused = append(refused, errors.New("alerts need sinks: declare those of Alerts.To with Handle or Deliver"))
	} else if o.alerts.On() && made.forwarder != nil {
		if made.judge, err = alerts.New(alerts.Config{
			Settings: o.alerts, Store: s, DB: o.db, Publisher: made.publisher, Forwarder: made.forwarder, Webhooks: hooked, Logger: o.Config.Logger,
		}); err != nil {
			refused = append(refused, err)
		}
	}
	if o.watch != nil && len(refused) == 0 {
		about := o.subject
		about.Alerts = o.alerts
		for _, s := range o.schedules {
			about.Schedules = append(about.Schedules, s.Name)
		}
		refused = append(refused, o.watch.Show(watch.Outbox{Config: o.forwarding(made), Forwarder: made.forwarder, Endpoints: made.endpoints, Subject: about}))
	}
	if err := errors.Join(refused...); err != nil {
		return err
	}
	o.opened.Store(made)
	return nil
}

// routeHandlers routes the types of handlers to their sinks. Open calls it, so that a type
// may be registered after its handlers.
func (o *Outbox) routeHandlers() error {
	var mistakes []error
	for _, sink := range slices.Sorted(maps.Keys(o.sinks)) {
		d := o.sinks[sink]
		if len(d.handlers) == 0 {
			continue
		}
		d.patterns = nil
		for _, namesOf := range d.handled {
			names, err := namesOf(o.types)
			if err != nil {
				mistakes = append(mistakes, fmt.Errorf("sink %q: %w", sink, err))
				continue
			}
			d.patterns = append(d.patterns, names...)
		}
	}
	return errors.Join(mistakes...)
}

// buildSinks builds the sinks that are declared by their configurations.
func (o *Outbox) buildSinks() error {
	logger := cmp.Or(o.Config.Logger, slog.Default())
	contracts := contract.Lazy(sync.OnceValues(func() (*contract.Set, error) { return contract.FromTypes(o.types) }))
	var mistakes []error
	for _, name := range slices.Sorted(maps.Keys(o.sinks)) {
		d := o.sinks[name]
		if d.from == nil {
			continue
		}
		built, err := d.from.Build(sinks.Instance{Name: name, Logger: logger.With("sink", name), Types: o.types, Contracts: contracts})
		if err != nil {
			mistakes = append(mistakes, ofSink(name, err))
			continue
		}
		d.Sink.Sink = built
	}
	return errors.Join(mistakes...)
}

// ofSink names the sink in each of the mistakes that an error joins.
func ofSink(name string, err error) error {
	all, joined := err.(interface{ Unwrap() []error })
	if !joined {
		return fmt.Errorf("sink %q: %w", name, err)
	}
	var mistakes []error
	for _, each := range all.Unwrap() {
		mistakes = append(mistakes, ofSink(name, each))
	}
	return errors.Join(mistakes...)
}

// forwarding returns the forwarder's configuration.
func (o *Outbox) forwarding(made *opened) Config {
	c := o.Config
	c.Store, c.Types, c.Routes, c.Sinks = made.store, o.types, make(route.Routes), make(map[string]Sink, len(o.sinks))
	c.Privacy = o.Privacy
	for pattern, rules := range o.alerts.Routes(o.routes) {
		c.Routes[pattern] = slices.Clone(rules)
	}
	for name, d := range o.sinks {
		for _, pattern := range d.patterns {
			if !slices.ContainsFunc(c.Routes[pattern], func(r Rule) bool { return r.Sink == name }) {
				c.Routes[pattern] = append(c.Routes[pattern], Rule{Sink: name})
			}
		}
		sink := d.Sink
		switch {
		case d.inTx != nil:
			in := *d.inTx
			in.Inbox, in.Publisher = inbox.New(made.store), made.publisher
			sink.Sink = inbox.Mux(in, o.types, d.handlers...)
		case len(d.handlers) > 0:
			sink.Sink = function.Mux(o.types, d.handlers...)
		}
		c.Sinks[name] = sink
	}
	if o.watch != nil {
		o.watch.Join(&c)
	}
	return c
}

// made returns what Open has created; its fields are nil before Open.
func (o *Outbox) made() opened {
	if made := o.opened.Load(); made != nil {
		return *made
	}
	return opened{}
}

// Publish appends notifications in the caller's transaction; see
// [outbox.Publisher.Publish]. Call [Outbox.Announce] after the commit of a transaction that
// InTx or InUnit did not begin.
func (o *Outbox) Publish(ctx context.Context, tx outbox.Tx, notifications ...any) error {
	publisher := o.Publisher()
	if publisher == nil {
		return ErrNotOpen
	}
	return publisher.Publish(ctx, tx, notifications...)
}

// CancelID cancels a notification that is still scheduled, in the caller's transaction; see
// [outbox.Publisher.CancelID].
func (o *Outbox) CancelID(ctx context.Context, tx outbox.Tx, id string) (cancelled int, err error) {
	publisher := o.Publisher()
	if publisher == nil {
		return 0, ErrNotOpen
	}
	return publisher.CancelID(ctx, tx, id)
}

// CancelKey cancels the notifications of a type and a key that are still scheduled, in the
// caller's transaction; see [outbox.Publisher.CancelKey]. It fails with
// [registry.ErrUnregistered] for a type that is not registered, which would match nothing.
func (o *Outbox) CancelKey(ctx context.Context, tx outbox.Tx, typ, key string) (cancelled int, err error) {
	publisher := o.Publisher()
	if publisher == nil {
		return 0, ErrNotOpen
	}
	if _, known := o.types.Lookup(typ); !known && typ != "" {
		return 0, fmt.Errorf("cancel by key: %w: %q; the registered types are %s", registry.ErrUnregistered, typ, o.typeNames())
	}
	return publisher.CancelKey(ctx, tx, typ, key)
}

// InTx runs f in a transaction: it commits if f returns nil and rolls back otherwise. After a
// commit that published something it wakes the forwarders; see [outbox.Publisher.RunInTx]. It
// opens the outbox if needed.
func (o *Outbox) InTx(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error {
	if err := o.Open(ctx); err != nil {
		return err
	}
	return o.made().publisher.RunInTx(ctx, o.db, nil, f)
}

// InUnit is [Outbox.InTx] with a unit of work, which publishes the events recorded by the
// aggregates that f tracks; see [outbox.Publisher.RunUnit].
func (o *Outbox) InUnit(ctx context.Context, f func(ctx context.Context, tx *sql.Tx, u *Unit) error) error {
	if err := o.Open(ctx); err != nil {
		return err
	}
	return o.made().publisher.RunUnit(ctx, o.db, nil, f)
}

// Announce wakes the forwarders after a commit of your own transaction; see
// [outbox.Publisher.Announce].
func (o *Outbox) Announce() {
	if publisher := o.Publisher(); publisher != nil {
		publisher.Announce()
	}
}

// Run delivers notifications and publishes those of schedules and alerts until ctx is done and the
// deliveries in flight have ended; see [forwarder.Forwarder.Run] and [schedule.Scheduler.Run].
// It opens the outbox if needed. Call it once.
func (o *Outbox) Run(ctx context.Context) error {
	if err := o.Open(ctx); err != nil {
		return err
	}
	made := o.made()
	switch {
	case made.forwarder == nil && made.scheduler == nil && o.watch == nil:
		return errors.New("there is nothing to run: declare a handler, a sink or a schedule before Run")
	case o.ran.Swap(true):
		return errors.New("an outbox runs only once: for a second run, make another outbox")
	}
	if o.watch != nil {
		end, err := o.watch.Run(ctx)
		if err != nil {
			return err
		}
		defer end()
	}
	running, ctx := errgroup.WithContext(ctx)
	if made.forwarder != nil {
		running.Go(func() error { return made.forwarder.Run(ctx) })
	}
	if made.scheduler != nil {
		running.Go(func() error { return made.scheduler.Run(ctx) })
	}
	if made.judge != nil {
		running.Go(func() error { return made.judge.Run(ctx) })
	}
	if made.forwarder == nil && made.scheduler == nil { // it is only observed
		<-ctx.Done()
	}
	return running.Wait()
}

func (o *Outbox) typeNames() string {
	var names []string
	for _, t := range o.types.Types() {
		names = append(names, t.Name)
	}
	return strings.Join(names, ", ")
}

// Types returns the registry of the declared types.
func (o *Outbox) Types() *registry.Registry { return o.types }

// Publisher returns the publisher; nil before Open.
func (o *Outbox) Publisher() *outbox.Publisher { return o.made().publisher }

// Forwarder returns the forwarder; nil before Open, and without sinks.
func (o *Outbox) Forwarder() *forwarder.Forwarder { return o.made().forwarder }

// Forwarding returns the configuration of the forwarder that Run runs, so that a program or
// test can make another one, such as with waybilltest.Drain. Before Open it fails with
// [ErrNotOpen].
func (o *Outbox) Forwarding() (Config, error) {
	made := o.opened.Load()
	if made == nil {
		return Config{}, ErrNotOpen
	}
	return o.forwarding(made), nil
}

// Inbox returns the inbox in the same database, where consumers note the ids that they have
// handled; nil before Open.
func (o *Outbox) Inbox() *inbox.Inbox {
	if made := o.opened.Load(); made != nil {
		return inbox.New(made.store)
	}
	return nil
}

// Endpoints returns what manages the endpoints of customers, to which the declared sink of package
// [webhooks] delivers; nil before Open, and without such a sink.
func (o *Outbox) Endpoints() *webhooks.Endpoints { return o.made().endpoints }

// Aliases for who may use a dashboard, for programs with one import.
type (
	DashboardConfig = dashboard.Config
	User            = dashboard.User
	Login           = settings.Login
	Token           = settings.Token
)

// The roles of a [User]; see [dashboard.Viewer] and [dashboard.Operator].
const (
	Viewer   = dashboard.Viewer
	Operator = dashboard.Operator
)

// watcher observes an outbox. It is an interface so that a program which is not observed does not contain the
// code of it.
type watcher interface {
	Join(*Config)
	Count(*outbox.Config)
	Show(watch.Outbox) error
	Run(context.Context) (end func(), err error)
}

// Observe makes Run serve the dashboard at an address, a host and a port, with metrics for Prometheus at
// /metrics and the probes /livez, /healthz and /readyz. The returned settings say who may use the dashboard,
// and may be changed until Open:
//
//	o.Observe("127.0.0.1:8090").Auth.Users = map[string]waybill.Login{"ada": {Password: hash, Role: waybill.Operator}}
//
// Without users, tokens, a proxy and Authorize, only a loopback address serves the dashboard, and every visitor
// is an operator; at other addresses there are only metrics and probes, which need no authentication. If Run
// cannot listen at the address, it returns the error. Leave Prefix empty. The metrics count what is published
// by type, and log with the Logger that Config has at the call.
func (o *Outbox) Observe(address string) *DashboardConfig {
	c, err := o.watched().Observe(address)
	o.note(err)
	return c
}

// Dashboard returns the dashboard as a handler for a server of the program, which serves it below c.Prefix.
// Either c.Authorize or c.Auth is required, and says who may use it: Open reports if both are missing, and the
// handler refuses everything. Until Open it answers 503, and again once Run has returned. Serve metrics and
// probes with [Outbox.Monitor].
func (o *Outbox) Dashboard(c DashboardConfig) http.Handler {
	h, err := o.watched().Dashboard(c)
	o.note(err)
	return h
}

// Monitor returns the metrics and the probes as a handler for a server of the program, and as a collector for
// a registry of the program; see [observe.Monitor]. Run samples the database for them. Like Observe and
// Dashboard it is a declaration, to be made before Open.
func (o *Outbox) Monitor() *observe.Monitor { return o.watched().Monitor }

func (o *Outbox) watched() *watch.Watch {
	o.declare()
	w, is := o.watch.(*watch.Watch)
	if !is {
		w = watch.New(o.Config.Logger)
		o.watch = w
	}
	return w
}

// Store returns the store of the open outbox, for packages that work on one; nil before Open. Together with
// [admin.New] it shows and changes what the command line does. It must not be used after the database was closed.
func (o *Outbox) Store() Store {
	return o.made().store
}

// Keyring returns the keys of private values, to erase a person with Admin:
//
//	plan, err := o.Admin("support").Erase(ctx, o.Keyring(), "customer-42")
//	…
//	_, err = plan.Run(ctx, nil)
//
// It is nil without Privacy, and before Open.
func (o *Outbox) Keyring() *privacy.Keyring { return o.made().keyring }

// Admin returns what shows and changes the outbox on behalf of a person or a program, whose name is recorded
// with each action; nil before Open. Its methods do what the command line and the dashboard do: Status, Why,
// Requeue and so on, each in transactions of its own connections; see [admin.Admin].
func (o *Outbox) Admin(who string) *admin.Admin {
	if made := o.opened.Load(); made != nil {
		return admin.New(made.store, who)
	}
	return nil
}

// Routing returns which sinks get which types, for Status, Why and others of [Outbox.Admin]; the zero value
// before Open.
func (o *Outbox) Routing() admin.Routing {
	if made := o.opened.Load(); made != nil {
		return dashboard.TargetOf(o.forwarding(made)).Routing
	}
	return admin.Routing{}
}

// Every ticks at each multiple of a period since 1970 in UTC; see [schedule.Every].
func Every(period time.Duration) When { return schedule.Every(period) }

// Cron ticks as a crontab line says, in a time zone; see [schedule.Cron].
func Cron(line, zone string) When { return schedule.Cron(line, zone) }

// Options of types and notifications, for programs with one import.

// Key gives a type its ordering key; see [registry.Key].
func Key[T any](key func(T) string) TypeOption { return registry.Key(key) }

// Version sets the version of the type's payload; see [registry.Version].
func Version(n int) TypeOption { return registry.Version(n) }

// Upcast turns a version of the payload into the next one; see [registry.Upcast].
func Upcast[From, To any](from int, convert func(From) (To, error)) TypeOption {
	return registry.Upcast(from, convert)
}

// Aliases are older names of a type; see [registry.Aliases].
func Aliases(names ...string) TypeOption { return registry.Aliases(names...) }

// Private marks values of a type as private data of a person; see [registry.Private] and Outbox.Privacy.
func Private[T any](subject func(T) string, fields ...string) TypeOption {
	return registry.Private(subject, fields...)
}

// Describe says what a type means to those who consume it; see [registry.Describe].
func Describe(d Description) TypeOption { return registry.Describe(d) }

// With publishes a notification with options; see [outbox.With].
func With(n any, options ...PublishOption) any { return outbox.With(n, options...) }

// ID is a notification's id in place of a new one; see [outbox.ID].
func ID(id string) PublishOption { return outbox.ID(id) }

// DeliverAt holds a notification back until a time; see [outbox.DeliverAt].
func DeliverAt(t time.Time) PublishOption { return outbox.DeliverAt(t) }

// Collect names the group in which sinks collect the notification, if they collect by what the publisher says; see
// [outbox.Collect].
func Collect(group string) PublishOption { return outbox.Collect(group) }

// Unique lets no second notification with the same uniqueness key be published within a
// period: Publish returns [ErrDuplicate], and the transaction stays usable; see
// [outbox.Unique].
func Unique(key string, period time.Duration) PublishOption { return outbox.Unique(key, period) }

// Metadata travels beside the payload; see [outbox.Metadata].
func Metadata(name, value string) PublishOption { return outbox.Metadata(name, value) }

// DeliveryFrom returns, in a function of Handle or HandleTx, its delivery: the notification's ID, OccurredOn,
// Key and Metadata, the Sink and the Attempt; see [function.DeliveryFrom]. In one of HandleMany it returns
// nil: see [CollectionFrom].
func DeliveryFrom(ctx context.Context) *Delivery { return function.DeliveryFrom(ctx) }

// CollectionFrom returns, in a function of HandleMany, the ID, the Attempt and the Members, which are the
// deliveries of the notifications, in their order; see [function.CollectionFrom].
func CollectionFrom(ctx context.Context) *Collection { return function.CollectionFrom(ctx) }

// Permanent is an error of a handler that makes the delivery dead at once; see
// [sinks.Permanent].
func Permanent(err error) error { return sinks.Permanent(err) }

// Throttled is an error of a handler that makes its sink wait until a time; see
// [sinks.Throttled].
func Throttled(until time.Time, err error) error { return sinks.Throttled(until, err) }

// Unavailable is an error of a handler that makes its sink wait until what it needs is
// back; see [sinks.Unavailable].
func Unavailable(err error) error { return sinks.Unavailable(err) }
