// Package coordinate decides which forwarder works on which lane.
//
// All forwarders read the same membership (the running forwarders, and the lanes that they have
// leased), and Assign gives each the same answer. So the work spreads evenly, moves when a
// forwarder dies or leaves, and hardly moves otherwise.
package coordinate

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/forwarder/internal/feed"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/forwarder/internal/presence"
	"github.com/waybill-go/waybill/framework/forwarder/internal/session"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// Store is what a coordinator needs from an outbox.
type Store interface {
	session.Store
	store.Leases
}

// Sink is a sink that this forwarder delivers to.
type Sink struct {
	Dispatcher *dispatch.Dispatcher
	// Types are the types that go to it.
	Types notification.TypeFilter
	// Start says where it begins if it has no cursors.
	Start store.Start
	Hooks policy.Hooks
	// Shared means that the feed may read for its lanes together with others.
	Shared bool
	// Prompt means that positions that moved without any delivery are written soon.
	Prompt bool
	// Transactor is the sink if it delivers exactly once; nil: at least once.
	Transactor sinks.Transactor
}

// Config is the configuration of a coordinator. Observer may be nil.
type Config struct {
	Store Store
	// Database is the name of the store's database; "" for none.
	Database string
	// Owner is the unique name of this forwarder.
	Owner string
	Sinks map[string]Sink
	// Others are sinks that only other forwarders work on, with their Start. Their cursors are
	// created at the same time as those of Sinks. Otherwise such a sink would begin after what
	// was forwarded before its forwarder started.
	Others map[string]store.Start
	// Takes returns the types of each configured sink by the present routes, those of Others too, and
	// of SinkUnrouted if it is worked on.
	Takes func() map[string]notification.TypeFilter
	// Lanes is the wanted number of lanes of each sink.
	Lanes           int
	Lease           time.Duration
	ShutdownTimeout time.Duration
	Feed            *feed.Feed
	// Gate says when deliveries may begin; nil: whenever a lane is leased.
	Gate *presence.Gate
	// Running returns what the heartbeats report about this forwarder; nil: nothing.
	Running func() store.Running
	// Members, if not nil, is called with the number of running forwarders when it changes.
	Members func(n int)
	// Actions lists recorded actions, as store.Planner does; nil: the store cannot.
	Actions func(ctx context.Context, limit int, names ...string) ([]store.Action, error)
	// Grows means that the log may get more partitions, which become lanes.
	Grows    bool
	Observer event.Observer
	Logger   *slog.Logger
}

// Coordinator leases and releases lanes. One goroutine runs it; the goroutines that it starts
// report to that one.
type Coordinator struct {
	Config
	stop, db context.Context // of Run
	fatal    error           // an error that waiting cannot repair
	end      context.CancelFunc
	pause    time.Duration // between two looks
	failing  *pace.Trouble
	growing  *pace.Trouble // with a source's partitions

	uncut     map[string]bool // sinks whose cursors may not exist or have another number of lanes
	heartbeat time.Time
	term      presence.Term              // at the last heartbeat
	reported  map[string]store.SinkState // in the last heartbeat
	held      map[laneID]*held
	paused    map[string]bool               // sinks paused by a person, as of the last look
	cutting   map[string]context.CancelFunc // sinks whose lanes this forwarder is cutting
	changing  map[string]change             // sinks that Change replaces
	routes    routes
	trouble   map[laneID]*pace.Trouble
	awaited   map[string]bool // owners logged as holding leases that this forwarder waits for
	nudged    chan struct{}   // capacity 1: a lane may be free
	ended     chan func()     // called when something that was started has ended
	changes   chan change
	over      chan struct{}         // closed at the end of Run
	members   int                   // number of running forwarders at the last look
	turned    atomic.Int64          // when Run last looked, in Unix nanoseconds; 0: never
	leased    atomic.Int64          // when a look last succeeded, in Unix nanoseconds; 0: never
	failed    atomic.Pointer[error] // of the last look; nil: it succeeded
}

// New returns a coordinator. It starts nothing.
func New(c Config) *Coordinator {
	k := &Coordinator{
		Config:   c,
		pause:    c.Lease / 20,
		failing:  pace.NewTrouble(c.Logger, "leasing", 0),
		growing:  pace.NewTrouble(c.Logger, "looking for the partitions of the source", 0),
		uncut:    make(map[string]bool),
		held:     make(map[laneID]*held),
		paused:   make(map[string]bool),
		cutting:  make(map[string]context.CancelFunc),
		changing: make(map[string]change),
		trouble:  make(map[laneID]*pace.Trouble),
		awaited:  make(map[string]bool),
		nudged:   make(chan struct{}, 1),
		ended:    make(chan func()),
		changes:  make(chan change),
		over:     make(chan struct{}),
	}
	k.uncutAll()
	return k
}

// uncutAll makes the next look check the cursors of all sinks.
func (k *Coordinator) uncutAll() {
	for name := range k.Sinks {
		k.uncut[name] = true
	}
	for name := range k.Others {
		k.uncut[name] = true
	}
}

// Nudge makes the coordinator look at once. It never blocks, and may be called at any time.
func (k *Coordinator) Nudge() {
	select {
	case k.nudged <- struct{}{}:
	default:
	}
}

// Turned returns when Run last looked at the leases, or zero. It is safe for concurrent use. A
// look takes at most the time of a lease.
func (k *Coordinator) Turned() time.Time { return timeOf(k.turned.Load()) }

// Leased returns when a look at the leases last succeeded, or zero, and why the last one failed. It is
// safe for concurrent use.
func (k *Coordinator) Leased() (at time.Time, failed error) {
	if err := k.failed.Load(); err != nil {
		failed = *err
	}
	return timeOf(k.leased.Load()), failed
}

func timeOf(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

// Run works on lanes until stop is done and all of them are released. db bounds all use of the
// database. It returns an error that waiting cannot repair, or nil.
func (k *Coordinator) Run(stop, db context.Context) error {
	defer close(k.over)
	k.db = db
	k.stop, k.end = context.WithCancel(stop)
	defer k.end()
	timer := time.NewTimer(k.pause)
	defer timer.Stop()
	k.Nudge()
	for k.stop.Err() == nil {
		select {
		case <-k.stop.Done():
			continue
		case end := <-k.ended:
			end()
			k.apply()
			timer.Reset(k.pause / 8) // another forwarder may be waiting for the lane
			continue
		case c := <-k.changes:
			k.changing[c.sink] = c
			k.apply()
			continue
		case <-k.nudged:
		case <-timer.C:
		}
		pause := k.pause
		k.turned.Store(time.Now().UnixNano())
		if err := k.look(); err == nil {
			k.failing.Over()
			k.leased.Store(time.Now().UnixNano())
			k.failed.Store(nil)
		} else if k.stop.Err() == nil {
			event.Tell(k.Observer, &event.DatabaseFailure{Op: event.OpLease, Err: err})
			k.failed.Store(&err)
			pause = k.failing.Met(err)
			if errors.Is(err, store.ErrReplaced) {
				k.fail(err)
			}
		}
		timer.Reset(pause)
	}
	k.leave() // otherwise the others would leave the lanes to this forwarder
	for len(k.held)+len(k.cutting) > 0 || k.routes.running {
		end := <-k.ended
		end()
	}
	return k.fatal
}

// fail ends Run.
func (k *Coordinator) fail(err error) {
	k.fatal = errors.Join(k.fatal, err)
	k.end()
}

// inLease bounds a use of the database by the time of a lease: a later answer is useless.
func (k *Coordinator) inLease(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, k.Lease)
}

// leave ends the membership, so that the others know that this forwarder takes no more lanes.
func (k *Coordinator) leave() {
	ctx, cancel := k.inLease(k.db)
	defer cancel()
	if err := k.Store.Leave(ctx, k.Owner); err != nil {
		k.Logger.Warn("leaving failed: the other forwarders will notice later that this one stops", "error", err)
	}
}

// look takes and releases lanes.
func (k *Coordinator) look() error {
	ctx, cancel := k.inLease(k.stop)
	defer cancel()
	if err := k.cutAll(ctx); err != nil {
		return err
	}
	me := store.Member{Owner: k.Owner, Sinks: k.delivers(), States: k.states()}
	term := k.Gate.Term() // another one: this forwarder was evicted, and is no member any more
	if began := time.Now(); began.Sub(k.heartbeat) >= k.Lease/3 || k.isNews(me.States) || k.term != term {
		if k.Running != nil {
			me.Running = k.Running()
		}
		if err := k.Store.Heartbeat(ctx, me, k.Lease); err != nil {
			return err
		}
		k.heartbeat, k.reported, k.term = began, me.States, term
		if k.Grows {
			k.uncutAll()
		}
	}
	membership, err := k.Store.Membership(ctx)
	if err != nil {
		return err
	}
	if n := len(membership.Members); k.Members != nil && n != k.members {
		k.members = n
		k.Members(n)
	}
	overtaken := k.overtaken(membership.Lanes)
	membership.Lanes = k.corrected(membership.Lanes, overtaken)
	k.inspect(membership.Lanes)
	membership.Lanes = k.route(membership)
	leaving := func(l store.Lane) bool {
		h := k.held[idOf(l)]
		return h != nil && h.leaving || k.cutting[l.Sink] != nil || overtaken[l.Sink] || k.isChanging(l.Sink)
	}
	take, leave := Assign(membership, me, leaving, 4*k.pause)
	for _, lane := range leave {
		k.held[idOf(lane)].leave()
	}
	revisions := make(map[laneID]int64)
	for _, l := range membership.Lanes {
		revisions[idOf(l.Lane)] = l.Revision
	}
	for _, lane := range take {
		if err := k.take(lane, revisions[idOf(lane)]); err != nil {
			return err
		}
	}
	k.logAwaited(membership)
	return nil
}

// cutAll creates or checks the cursors of the sinks in uncut. A source that does not answer must
// not stop the work on existing lanes: the query gets a part of the lease's time, and is repeated
// later.
func (k *Coordinator) cutAll(ctx context.Context) error {
	asking := ctx
	if k.Grows {
		if time.Now().Before(k.growing.Until()) {
			return nil
		}
		var cancel context.CancelFunc
		asking, cancel = context.WithTimeout(ctx, k.Lease/4)
		defer cancel()
	}
	for sink := range k.uncut {
		created, err := k.Store.Cut(asking, sink, k.Lanes, k.startOf(sink))
		switch {
		case err == nil:
			delete(k.uncut, sink)
			k.logCreated(sink, created)
		case !k.Grows || ctx.Err() != nil:
			return err
		default:
			event.Tell(k.Observer, &event.DatabaseFailure{Op: event.OpLease, Err: err})
			k.growing.Met(err)
			return nil
		}
	}
	k.growing.Over()
	return nil
}

func (k *Coordinator) startOf(sink string) store.Start {
	if s, mine := k.Sinks[sink]; mine {
		return s.Start
	}
	return k.Others[sink]
}

// overtaken leaves the lanes that others have cut while this forwarder works on them: for the database, their
// leases had expired. It returns their sinks. No new lane of those is taken before the work on the old ones has
// ended, since it would deliver the same keys at once.
func (k *Coordinator) overtaken(lanes []store.LaneState) map[string]bool {
	of := make(map[string]int)
	for _, l := range lanes {
		of[l.Lane.Sink] = l.Lane.Of
	}
	sinks := make(map[string]bool)
	for id, h := range k.held {
		if now, exists := of[id.sink]; exists && now != h.lane.Of {
			h.leave()
			sinks[id.sink] = true
		}
	}
	return sinks
}

// corrected returns lanes as the database has them, corrected by what only this forwarder knows.
func (k *Coordinator) corrected(lanes []store.LaneState, overtaken map[string]bool) []store.LaneState {
	lanes = slices.Clone(lanes)
	for i := range lanes {
		l := &lanes[i]
		l.Lane.Database = k.Database
		switch works := k.held[idOf(l.Lane)] != nil || k.cutting[l.Lane.Sink] != nil || overtaken[l.Lane.Sink]; {
		case works && l.Owner == "":
			l.Owner = k.Owner // its lease expired, but the work on it has not ended yet
		case !works && l.Owner == k.Owner:
			l.Owner, l.Free = "", k.Lease // an answer was lost, or a release failed: free for long, since others cannot take it
		}
	}
	return lanes
}

// inspect leaves lanes that are paused, signals revisions to sessions, and handles sinks whose lanes
// must be cut.
func (k *Coordinator) inspect(all []store.LaneState) {
	lanes := make(map[string][]store.LaneState)
	for _, l := range all {
		switch h := k.held[idOf(l.Lane)]; {
		case h != nil && l.Paused && !h.leaving:
			h.leave()
		case h != nil:
			h.revise(l.Revision)
		}
		lanes[l.Lane.Sink] = append(lanes[l.Lane.Sink], l)
	}
	for sink := range k.Sinks {
		if k.isChanging(sink) {
			continue
		}
		cursors := lanes[sink]
		if len(cursors) == 0 {
			k.uncut[sink] = true // a person has forgotten the sink
			continue
		}
		k.Sinks[sink].Dispatcher.Retain(func(lane store.Lane) bool { // forgets lanes that others work on
			return lane.Database != k.Database || slices.ContainsFunc(cursors, func(c store.LaneState) bool {
				return c.Lane == lane && (c.Owner == "" || c.Owner == k.Owner)
			})
		})
		k.logPaused(sink, cursors[0].Paused)
		rerouted := slices.ContainsFunc(cursors, func(c store.LaneState) bool { return c.WantedTypes != nil })
		switch {
		case cursors[0].Wanted != 0 && !cursors[0].Paused && !rerouted:
			k.recut(sink, cursors)
		case k.cutting[sink] != nil:
			k.cutting[sink]() // no longer wanted, or its types change first: those of other sinks wait for that
		}
	}
}

// logCreated logs where a new sink begins.
func (k *Coordinator) logCreated(sink string, c store.Created) {
	if c.Lanes == 0 {
		return
	}
	if c.Grown {
		k.Logger.With("sink", sink).Info("the log has more partitions", "lanes", c.Lanes)
		return
	}
	passed := strconv.Itoa(c.Passed)
	if c.Passed >= store.PendingLimit {
		passed += " or more"
	}
	log := k.Logger.With("sink", sink, "start", c.Start, "rows_passed_over", passed)
	if c.Passed > 0 {
		log = log.With("hint", "a replay delivers what other sinks took before; start: oldest would have")
	}
	log.Info("the sink is new to this outbox")
}

// logPaused logs when a sink is paused or resumed.
func (k *Coordinator) logPaused(sink string, paused bool) {
	switch log := k.Sinks[sink].Dispatcher.LogOf(k.Database); {
	case paused && !k.paused[sink]:
		log.Info("sink is paused: its lanes are released until it is resumed", k.pausedBy(sink)...)
	case !paused && k.paused[sink]:
		log.Info("sink is resumed")
	}
	k.paused[sink] = paused
}

// pausedBy returns who paused a sink, since when and why, for the log; nothing if the role of a forwarder may not read
// it.
func (k *Coordinator) pausedBy(sink string) []any {
	if k.Actions == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(k.db, k.Lease/4)
	defer cancel()
	actions, _ := k.Actions(ctx, store.PauseLimit, "pause", "resume")
	pause, known := store.Pauses(actions)[sink]
	if !known {
		return nil
	}
	return []any{"by", pause.Who, "since", pause.At.UTC(), "reason", pause.Reason}
}

// states returns the states of the sinks with a problem.
func (k *Coordinator) states() map[string]store.SinkState {
	states := make(map[string]store.SinkState)
	for name, s := range k.Sinks {
		if state := s.Dispatcher.State(); state.Holds() {
			states[name] = state
		}
	}
	return states
}

// isNews reports whether states must be reported before the next regular heartbeat, because a
// problem began or ended. Changes of a throttling that goes on can wait.
func (k *Coordinator) isNews(states map[string]store.SinkState) bool {
	return !maps.EqualFunc(k.reported, states, func(a, b store.SinkState) bool {
		return a.BreakerOpen == b.BreakerOpen && a.ThrottledUntil.IsZero() == b.ThrottledUntil.IsZero() &&
			(a.AllDestinations == 0) == (b.AllDestinations == 0)
	})
}
