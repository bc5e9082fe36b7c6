package forwarder

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder/internal/coordinate"
	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/forwarder/internal/feed"
	"github.com/waybill-go/waybill/framework/forwarder/internal/presence"
	"github.com/waybill-go/waybill/framework/forwarder/internal/prune"
	"github.com/waybill-go/waybill/framework/forwarder/internal/quota"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/store"
)

// outbox is a forwarder's work on one outbox: it reads the log, leases lanes and removes old rows.
// It delivers to the sinks of the forwarder, which its outboxes share.
type outbox struct {
	forwarder   *Forwarder
	name        string // "" for Config.Store
	given       Store
	bounded     *quota.Bounded // given, for everything except the feed
	connections int
	polled      bool          // do not listen
	sleep       time.Duration // 0: never return an *Idle
	feed        *feed.Feed
	presence    *presence.Keeper // nil: none
	observer    event.Observer
	log         *slog.Logger
	coordinator *coordinate.Coordinator // set before it is in Forwarder.outboxes
}

func (f *Forwarder) newOutbox(d Database) *outbox {
	o := &outbox{forwarder: f, name: d.Name, given: d.Store, connections: d.Connections, polled: d.Polled, sleep: d.Sleep, observer: f.reporter, log: f.config.Logger}
	setDefault(&o.connections, f.config.Connections)
	observer := f.config.Observer
	if o.name != "" {
		o.log = o.log.With("database", o.name)
		o.observer = inDatabase{f.reporter, o.name}
		observer = o.observer
	}
	o.bounded = quota.New(d.Store, o.connections)
	f.addKeyring(d)
	if _, can := d.Store.(store.Presences); can && o.name == "" { // a fleet has no session to spare for each database
		o.presence = presence.New(presence.Config{Store: o.bounded, Owner: f.OwnerIn(o.name), Lease: f.config.Lease, Freed: func() { o.coordinator.Nudge() }, Logger: o.log})
	}
	_, announced := d.Store.(store.Listener)
	o.feed = feed.New(feed.Config{Log: d.Store, Database: d.Name, PollMin: f.config.Poll / pollShare, PollMax: f.config.Poll, Unannounced: !announced, PageRows: dispatch.PageRows,
		Observer: observer, Logger: o.log})
	return o
}

// run works on the outbox until ctx is done, and then stops gracefully. Its error is one that
// waiting cannot repair, or an *Idle.
func (o *outbox) run(ctx context.Context) (fatal error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	f := o.forwarder
	db, cancelDB := context.WithCancel(context.WithoutCancel(ctx)) // done: even the last checkpoint is cut off
	defer cancelDB()
	stopping := context.AfterFunc(ctx, func() {
		if pace.Sleep(db, f.config.ShutdownTimeout+lastWrites) {
			cancelDB()
		}
	})
	defer stopping()

	if keys := f.keyringOf(o.name); keys != nil && f.config.Privacy.Master != nil { // without one, sinks that get none may go on
		check := keys.Check
		if len(f.config.Privacy.Rules) > 0 {
			check = keys.Prepare
		}
		if err := check(ctx); errors.Is(err, privacy.ErrMaster) {
			return err
		} else if err != nil {
			o.log.Warn("the keys of private values cannot be read now: deliveries that need them wait", "error", err)
		}
	}
	f.enter(o)
	defer f.leave(o)
	var work sync.WaitGroup
	work.Go(func() { o.feed.Run(ctx) })
	if l, ok := o.given.(store.Listener); ok && !o.polled {
		work.Go(func() { o.feed.Listen(ctx, l, o.coordinator.Nudge) })
	}
	lanes, left := context.WithCancel(context.WithoutCancel(ctx)) // done: no lane is worked on any more
	defer left()
	if o.presence != nil {
		work.Go(func() { o.presence.Run(lanes) })
	}
	work.Go(func() {
		defer left()
		fatal = o.coordinator.Run(ctx, db)
		end() // if it failed
	})
	work.Go(func() { o.prune(ctx, db) })
	var idle *Idle
	if o.sleep > 0 {
		work.Go(func() { idle = o.rest(ctx, end) })
	}
	work.Wait()
	if fatal == nil && idle != nil {
		return idle
	}
	return fatal
}

// In a bounded pool, handlers cannot use the reserved connections. Otherwise they could keep the
// forwarder from renewing its leases.
const (
	reserved     = 2
	leastBounded = reserved + 2 // the smallest pool to reserve from: leaves one for reading and one for a handler
)

// unknownTime bounds reserving in a pool of unknown size: if it is too small, the start waits for that long.
const unknownTime = 5 * time.Second

// reserve reserves connections of a bounded pool for leases and checkpoints until release is
// called. It warns if the pool is too small, or if its bound is not known.
func (o *outbox) reserve(ctx context.Context) (release func()) {
	release = func() {}
	r, ok := o.given.(store.Reserver)
	if !ok {
		return release
	}
	log, patience := o.log.With("pool_allows", r.MaxConnections(), "forwarder_needs", o.connections), o.forwarder.config.Lease
	switch allows := r.MaxConnections(); {
	case allows == 0:
		patience = min(patience, unknownTime)
		if !o.borrows(ctx, patience) {
			return release
		}
		log = o.log.With("forwarder_needs", o.connections)
		log.Warn("the database handle takes its connections from another pool, whose size it does not know: call db.SetMaxOpenConns with it, as in db.SetMaxOpenConns(int(pool.Config().MaxConns)), or make the outbox with waybillpgx.New")
	case allows <= o.connections:
		log.Warn("the pool of database connections is too small: the forwarder needs these connections in addition to those of handlers, hooks and the application")
		if allows < leastBounded {
			return release
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	taken, err := r.Reserve(ctx, reserved)
	if err != nil {
		log.Warn("no connections are reserved for leases and checkpoints: handlers that use the whole pool can make leases expire", "error", err)
		return release
	}
	return taken
}

// borrows reports whether the store's handle takes its connections from another pool.
func (o *outbox) borrows(ctx context.Context, patience time.Duration) bool {
	b, ok := o.given.(store.Borrower)
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	borrows, err := b.Borrows(ctx)
	if err != nil {
		o.log.Debug("it is not known whether the database handle has its own pool", "error", err)
	}
	return borrows
}

// prune removes old rows if the store can.
func (o *outbox) prune(stop, db context.Context) {
	rows, ok := o.given.(store.Pruner)
	if !ok {
		return
	}
	f := o.forwarder
	partitions, _ := o.given.(store.Partitioner)
	prune.New(prune.Config{
		Leases: o.bounded, Rows: rows, Partitions: partitions, Bound: o.bounded.Prune,
		Retention: f.config.Retention, InboxRetention: f.config.InboxRetention, Sinks: f.known,
		Owner: f.OwnerIn(o.name), Lease: f.config.Lease, Observer: o.observer, Logger: o.log,
	}).Run(stop, db)
}

// lastWrites is how long the last checkpoints may take after deliveries were cut off.
const lastWrites = dispatch.AbandonAfter + 5*time.Second

// coordination returns the coordinator's configuration for some sinks.
func (o *outbox) coordination(active map[string]*activeSink) coordinate.Config {
	f := o.forwarder
	c := coordinate.Config{
		Store: o.bounded, Database: o.name, Owner: f.OwnerIn(o.name), Sinks: make(map[string]coordinate.Sink), Others: make(map[string]store.Start), Takes: f.Takes,
		Lanes: f.config.Lanes, Lease: f.config.Lease, ShutdownTimeout: f.config.ShutdownTimeout, Feed: o.feed,
		Running: func() store.Running { return f.report(o.name) }, Grows: o.isSourced(), Observer: o.observer, Logger: o.log,
	}
	if p, plans := o.given.(store.Planner); plans {
		c.Actions = p.Actions
	}
	if o.presence != nil {
		c.Gate = &o.presence.Gate
	}
	if f.config.Fleet {
		c.Members = func(n int) { f.share(func(s *rateShare) { s.members[o] = n }) }
	}
	for name, a := range active {
		c.Sinks[name] = o.sink(a)
	}
	for name, sink := range f.config.Sinks {
		if _, mine := c.Sinks[name]; !mine {
			c.Others[name] = sink.Start
		}
	}
	return c
}

// sink returns a sink of the forwarder as the outbox's coordinator needs it.
func (o *outbox) sink(a *activeSink) coordinate.Sink {
	return coordinate.Sink{
		Dispatcher: a.dispatcher, Types: a.types, Start: a.Start, Hooks: o.hooks(a),
		Shared: a.path.Plain() && !o.isSourced(), // a slow condition delays only its own lanes
		Prompt: a.name == store.SinkUnrouted, Transactor: transactorOf(a.Sink),
	}
}

func (o *outbox) isSourced() bool { return store.SourceOf(o.given) != nil }

// figures returns what the work on the outbox does now.
func (o *outbox) figures() DatabaseFigures {
	leased, failed := o.coordinator.Leased()
	return DatabaseFigures{
		Database: o.name, Listening: o.feed.Listening(), Looked: o.feed.Turned(), Coordinated: o.coordinator.Turned(),
		Leased: leased, Failed: cmp.Or(o.feed.Failed(), failed),
	}
}
