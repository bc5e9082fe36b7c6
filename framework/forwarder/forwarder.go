// Package forwarder is the engine: it carries envelopes from the log to the
// sinks, at least once, in order for each key.
//
// The way of one notification: the poller sees that the log has grown; a lane's
// reader takes a page into its window; each item waits its key's turn (keys.go)
// and is handed to the sink's courier, whose workers deliver it; its outcome
// settles it; the lane's settler writes the checkpoint. What cannot be delivered
// now is parked in that checkpoint and brought back by the settler.
//
// The files in the order in which to read them: config.go, forwarder.go,
// keeper.go, shift.go, poller.go, lane.go, window.go, keys.go,
// courier.go, call.go, shape.go, result.go, middleware.go,
// settler.go, hooks.go. Package prune removes old rows beside all that.
package forwarder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/forwarder/internal/prune"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// Forwarder moves envelopes from one outbox to its sinks. Any number of them may
// run on one outbox, in any number of processes: each lane of each sink is worked
// on by one of them at a time.
type Forwarder struct {
	config   Config
	routes   *route.Table
	owner    string
	poller   *poller
	couriers []*courier
}

// New checks a configuration and reports all that is wrong with it at once.
// Nothing is started or opened.
func New(c Config) (*Forwarder, error) {
	c = c.WithDefaults()
	routes, err := c.compile()
	if err != nil {
		return nil, err
	}
	f := &Forwarder{
		config: c,
		routes: routes,
		owner:  fmt.Sprintf("%s/%d/%s", c.Name, os.Getpid(), uuid.NewString()[:8]),
		poller: newPoller(c.Store, c.Poll, pace.NewTrouble(c.Logger, "looking at the log", 0)),
	}
	for _, name := range slices.Sorted(maps.Keys(c.Sinks)) {
		f.couriers = append(f.couriers, newCourier(name, c.Sinks[name], routes.To(name), c.Logger))
	}
	if unrouted := routes.Unrouted(); c.Unrouted == UnroutedPark && !unrouted.None() {
		f.couriers = append(f.couriers, newCourier(store.SinkUnrouted, Sink{Sink: noRoute{}}.WithDefaults(), routes.To(store.SinkUnrouted), c.Logger))
	}
	return f, nil
}

// Adjust changes how deliveries to a sink are made while the forwarder runs, or
// before: change gets the settings as they are. Parallelism, Retry, Timeout, Rate,
// Breaker and Fairness take effect with the next delivery, and nothing is lost or
// repeated by it; a threshold that was lowered is kept to as soon as enough of
// what is in flight has ended. Everything else needs another forwarder. Settings
// that make no sense, and another OnDead, are refused as ErrConfig, with nothing
// changed.
func (f *Forwarder) Adjust(sink string, change func(s *Sink)) error {
	i := slices.IndexFunc(f.couriers, func(c *courier) bool { return c.name == sink && sink != store.SinkUnrouted })
	if i < 0 {
		return fmt.Errorf("%w: there is no sink %q", ErrConfig, sink)
	}
	c := f.couriers[i]
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &policy.Problems{}
	changed := c.sink
	changed.Retry.Types = maps.Clone(changed.Retry.Types)
	change(&changed)
	changed = changed.WithDefaults()
	changed.validate(p, "sinks."+sink)
	p.Require(changed.OnDead == c.sink.OnDead, "sinks.%s.on_dead cannot be changed while the forwarder runs", sink)
	if err := p.Err(); err != nil {
		return err
	}
	c.adjust(changed)
	return nil
}

// noRoute is the sink of what has no other: everything dies there, with its
// bytes kept.
type noRoute struct{}

func (noRoute) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	return "", sinks.Permanent(ErrNoRoute)
}

// Wake has the forwarder look at the log at once. A publisher in the same process
// calls it after a commit; without, and where the store does not listen, new rows
// are found within the poll's pause.
// It never blocks and may be called at any time.
func (f *Forwarder) Wake() { f.poller.wake() }

// Run opens the sinks and forwards until ctx is done. Then it stops gracefully:
// it reads no more, lets deliveries in flight end within the shutdown timeout,
// writes the last checkpoints, gives its leases back, closes the sinks, and
// returns nil. An error is one that waiting would not mend: a sink that does not
// open, cursors that do not fit the configuration. Trouble with the database or
// a destination is logged and waited for. Run is called once.
func (f *Forwarder) Run(ctx context.Context) (err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	defer func() { err = errors.Join(err, f.closeSinks(context.WithoutCancel(ctx))) }()
	if err := f.openSinks(ctx); err != nil {
		return err
	}
	f.config.Logger.Info("forwarding", "owner", f.owner, "sinks", slices.Sorted(maps.Keys(f.config.Sinks)), "lanes", f.config.Lanes)

	f.warnOfUnrouted()

	r := run{Forwarder: f, stop: ctx, fail: fail}
	var cancelDB context.CancelFunc
	r.db, cancelDB = context.WithCancel(context.WithoutCancel(ctx))
	defer cancelDB()
	stopping := context.AfterFunc(ctx, func() {
		if pace.Sleep(r.db, f.config.ShutdownTimeout+lastWrites) {
			cancelDB()
		}
	})
	defer stopping()

	keeper := newKeeper(&r)
	var work sync.WaitGroup
	work.Go(func() { f.poller.run(ctx) })
	if l, ok := f.config.Store.(store.Listener); ok {
		work.Go(func() { f.poller.listen(ctx, l, keeper.nudge, pace.NewTrouble(f.config.Logger, "listening", 0)) })
	}
	work.Go(keeper.keep)
	work.Go(func() { f.prune(ctx, r.db) })
	work.Wait()
	for _, c := range f.couriers {
		c.stop()
	}
	f.config.Logger.Info("stopped")
	var fatal *fatalError
	if errors.As(context.Cause(ctx), &fatal) {
		return fatal.err
	}
	return nil
}

// prune removes old rows, where the store can.
func (f *Forwarder) prune(stop, db context.Context) {
	rows, ok := f.config.Store.(store.Pruner)
	if !ok {
		return
	}
	partitions, _ := f.config.Store.(store.Partitioner)
	sinks := make([]string, len(f.couriers))
	for i, c := range f.couriers {
		sinks[i] = c.name
	}
	prune.New(prune.Config{
		Leases: f.config.Store, Rows: rows, Partitions: partitions,
		Retention: f.config.Retention, Sinks: sinks,
		Owner: f.owner, Lease: f.config.Lease, Logger: f.config.Logger,
	}).Run(stop, db)
}

// lastWrites is how long the last checkpoints may take once deliveries were cut off.
const lastWrites = abandonAfter + 5*time.Second

// fatalError ends Run.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }

// run is what the goroutines of one Run share.
type run struct {
	*Forwarder
	stop context.Context // done: stop gracefully
	db   context.Context // done: not even a last checkpoint
	fail context.CancelCauseFunc
}

// inLease bounds a use of the database by the time of a lease: an answer that has
// not come by then is worth nothing.
func (r *run) inLease(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.config.Lease)
}

// acquire does not heed stop, which would leave a lease behind that nobody knows
// of.
func (r *run) acquire(lane store.Lane) (store.Lease, error) {
	ctx, cancel := r.inLease(r.db)
	defer cancel()
	return r.config.Store.Acquire(ctx, lane, r.owner, r.config.Lease)
}

func (r *run) release(lease store.Lease) error {
	ctx, cancel := r.inLease(r.db)
	defer cancel()
	return r.config.Store.Release(ctx, lease)
}

// types selects what goes to a sink.
func (r *run) types(sink string) notification.TypeFilter {
	if sink == store.SinkUnrouted {
		return r.routes.Unrouted()
	}
	return r.routes.Filter(sink)
}

// warnOfUnrouted names the registered types that no route matches.
func (f *Forwarder) warnOfUnrouted() {
	if f.config.Types == nil {
		return
	}
	for _, t := range f.config.Types.Types() {
		if len(f.routes.Sinks(t.Name)) == 0 {
			f.config.Logger.Warn("no route matches a registered type", "type", t.Name, "unrouted", f.config.Unrouted)
		}
	}
}

func (f *Forwarder) openSinks(ctx context.Context) error {
	for _, c := range f.couriers {
		if err := c.open(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (f *Forwarder) closeSinks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.config.ShutdownTimeout)
	defer cancel()
	var errs []error
	for _, c := range f.couriers {
		closer, ok := c.destination.(sinks.Closer)
		if !ok || !c.opened {
			continue
		}
		if err := closer.Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close sink %s: %w", c.name, err))
		}
	}
	return errors.Join(errs...)
}

// Stats counts what a forwarder did for one sink since it was made.
type Stats struct {
	Sink      string
	Delivered int64 // deliveries that the sink took
	Failed    int64 // attempts that failed for the moment
	Dead      int64 // deliveries given up
	PassedBy  int64 // notifications that no condition of their routes brought to the sink
	Pending   int   // in memory and not settled
	InFlight  int   // of these, in the sink's hands
	// Abandoned are calls of the sink that did not come back after their deadline
	// and keep a slot of the threshold each.
	Abandoned int
}

// Stats reports each sink, in alphabetical order. It may be called at any time.
func (f *Forwarder) Stats() []Stats {
	all := make([]Stats, len(f.couriers))
	for i, c := range f.couriers {
		c.mu.Lock()
		all[i] = c.stats
		all[i].Sink, all[i].Pending, all[i].InFlight, all[i].Abandoned = c.name, c.pending, c.inFlight, c.stuck
		c.mu.Unlock()
	}
	return all
}
