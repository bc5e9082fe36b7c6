// Package coordinate decides which forwarder works on which lane.
//
// Every forwarder reads the same membership (which forwarders live, and which lanes they
// have leased), and Assign gives each the same answer; so the work spreads evenly, moves
// when a forwarder dies or leaves, and hardly moves otherwise.
//
// The files in the order in which to read them: coordinator.go, assign.go, lanes.go,
// recut.go, change.go, awaited.go.
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

	"github.com/waybill-go/waybill/framework/forwarder/internal/dispatch"
	"github.com/waybill-go/waybill/framework/forwarder/internal/feed"
	"github.com/waybill-go/waybill/framework/forwarder/internal/lane"
	"github.com/waybill-go/waybill/framework/forwarder/internal/policy"
	"github.com/waybill-go/waybill/framework/forwarder/internal/settle"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// Store is what a coordinator needs of an outbox.
type Store interface {
	lane.Store
	store.Leases
}

// Sink is one of the sinks that a forwarder delivers to.
type Sink struct {
	Dispatcher *dispatch.Dispatcher
	// Types are those that go to it.
	Types notification.TypeFilter
	// Start says where it begins if it has no cursors.
	Start store.Start
	Hooks policy.Hooks
	// Shared says that its lanes may be read for together with others.
	Shared bool
	// Prompt says that positions that moved without any delivery are written soon.
	Prompt bool
	// Transactor is the sink, where each delivery is to be made once; nil: at least once.
	Transactor sinks.Transactor
}

// Config is what a coordinator works with. Observer may be nil.
type Config struct {
	Store Store
	// Database is the name that the store gives its lanes; "" for none.
	Database string
	// Owner names this forwarder, and no other.
	Owner string
	Sinks map[string]Sink
	// Others are sinks that only other forwarders work on, with where they begin. They
	// get their cursors at the same time as the first of Sinks: else one would begin behind
	// what was forwarded before its forwarder came.
	Others map[string]store.Start
	// Lanes is how many lanes each sink is to be cut into.
	Lanes           int
	Lease           time.Duration
	ShutdownTimeout time.Duration
	Feed            *feed.Feed
	// Running is what this forwarder says of itself with its heartbeats; nil says nothing.
	Running func() store.Running
	// Members gets how many forwarders live whenever that is another number; nil: it is not wanted.
	Members func(n int)
	// Grows says that the log may have more partitions later, which are lanes.
	Grows    bool
	Observer policy.Observer
	Logger   *slog.Logger
}

// Coordinator leases lanes and gives them back. It is for one goroutine; what it starts
// reports to it.
type Coordinator struct {
	Config
	stop, db context.Context // of Run
	fatal    error           // what waiting would not mend
	end      context.CancelFunc
	pause    time.Duration // between two looks
	failing  *pace.Trouble
	growing  *pace.Trouble // with a source's partitions

	uncut     map[string]bool // sinks whose lanes are not known to be cut
	heartbeat time.Time
	reported  map[string]store.SinkState // with the last heartbeat
	held      map[laneID]*held
	paused    map[string]bool               // sinks that a person has paused, as of the last look
	cutting   map[string]context.CancelFunc // sinks whose lanes this forwarder is cutting
	changing  map[string]change             // sinks that are to be worked on otherwise
	trouble   map[laneID]*pace.Trouble
	awaited   map[string]bool // owners whose leases were logged as waited for
	nudged    chan struct{}   // capacity 1: a lane may be free
	ended     chan func()     // what to do when something that was started has ended
	changes   chan change
	over      chan struct{} // closed at the end of Run
	members   int           // that live, as of the last look
	turned    atomic.Int64  // when Run last looked, in Unix nanoseconds; 0: never
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

// uncutAll has the next look see to the cursors of all sinks.
func (k *Coordinator) uncutAll() {
	for name := range k.Sinks {
		k.uncut[name] = true
	}
	for name := range k.Others {
		k.uncut[name] = true
	}
}

// Nudge makes the coordinator look at once. It never blocks, and may be called at
// any time.
func (k *Coordinator) Nudge() {
	select {
	case k.nudged <- struct{}{}:
	default:
	}
}

// Turned is when Run last looked at the leases; zero: it has not yet. It may be called from any
// goroutine. A look takes the time of a lease at most.
func (k *Coordinator) Turned() time.Time {
	if turned := k.turned.Load(); turned != 0 {
		return time.Unix(0, turned)
	}
	return time.Time{}
}

// Run holds lanes until stop is done and all of them are given back. db bounds all use
// of the database. Its error is one that waiting would not mend.
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
			timer.Reset(k.pause / 8) // a forwarder may wait for it
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
		} else if k.stop.Err() == nil {
			policy.Failed(k.Observer, policy.OpLease, err)
			pause = k.failing.Met(err)
		}
		timer.Reset(pause)
	}
	k.leave() // or the lanes would be left for this one
	for len(k.held)+len(k.cutting) > 0 {
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

// inLease bounds a use of the database by the time of a lease: an answer that has not
// come by then is worth nothing.
func (k *Coordinator) inLease(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, k.Lease)
}

// leave announces to the others that this forwarder takes no more lanes.
func (k *Coordinator) leave() {
	ctx, cancel := k.inLease(k.db)
	defer cancel()
	if err := k.Store.Leave(ctx, k.Owner); err != nil {
		k.Logger.Warn("the others will notice later that this forwarder stops", "error", err)
	}
}

// look takes up and lets go of lanes.
func (k *Coordinator) look() error {
	ctx, cancel := k.inLease(k.stop)
	defer cancel()
	if err := k.cutAll(ctx); err != nil {
		return err
	}
	me := store.Member{Owner: k.Owner, Sinks: slices.Sorted(maps.Keys(k.Sinks)), States: k.states()}
	if began := time.Now(); began.Sub(k.heartbeat) >= k.Lease/3 || k.isNews(me.States) {
		if k.Running != nil {
			me.Running = k.Running()
		}
		if err := k.Store.Heartbeat(ctx, me, k.Lease); err != nil {
			return err
		}
		k.heartbeat, k.reported = began, me.States
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
	k.inspect(&membership)
	leaving := func(l store.Lane) bool {
		h := k.held[idOf(l)]
		return h != nil && h.leaving || k.cutting[l.Sink] != nil || k.isChanging(l.Sink)
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

// cutAll sees to the cursors of the sinks that are not known to have theirs. A source that does not
// answer is no reason to stop the work on the lanes that there are: it gets a part of the lease's time, and
// is asked again later.
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
			policy.Failed(k.Observer, policy.OpLease, err)
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

// inspect corrects the membership by what only this forwarder knows, and sees to sinks
// whose lanes are to be cut.
func (k *Coordinator) inspect(membership *store.Membership) {
	lanes := make(map[string][]store.LaneState)
	for i := range membership.Lanes {
		l := &membership.Lanes[i]
		h := k.held[idOf(l.Lane)]
		switch works := h != nil || k.cutting[l.Lane.Sink] != nil; {
		case works && l.Owner == "":
			l.Owner = k.Owner // its lease ran out, and the work on it has not ended yet
		case !works && l.Owner == k.Owner:
			l.Owner = "" // the answer to Acquire was lost
		}
		switch {
		case h != nil && l.Paused && !h.leaving:
			h.leave()
		case h != nil:
			h.revise(l.Revision)
		}
		lanes[l.Lane.Sink] = append(lanes[l.Lane.Sink], *l)
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
		k.Sinks[sink].Dispatcher.Retain(func(lane store.Lane) bool { // what others work on is not remembered
			return lane.Database != k.Database || slices.ContainsFunc(cursors, func(c store.LaneState) bool {
				return c.Lane == lane && (c.Owner == "" || c.Owner == k.Owner)
			})
		})
		k.logPaused(sink, cursors[0].Paused)
		switch {
		case cursors[0].Wanted != 0 && !cursors[0].Paused:
			k.recut(sink, cursors)
		case k.cutting[sink] != nil:
			k.cutting[sink]() // it is not wanted any more
		}
	}
}

// logCreated logs where a new sink begins.
func (k *Coordinator) logCreated(sink string, c store.Created) {
	if c.Lanes == 0 {
		return
	}
	passed := strconv.Itoa(c.Passed)
	if c.Passed >= store.PendingLimit {
		passed += " or more"
	}
	if c.Grown {
		k.Logger.With("sink", sink).Info("the log has more partitions", "lanes", c.Lanes)
		return
	}
	k.Logger.With("sink", sink).Info("the sink is new to this outbox", "start", c.Start, "rows_passed_over", passed)
}

// logPaused logs when a sink is paused, and when it no longer is.
func (k *Coordinator) logPaused(sink string, paused bool) {
	switch log := k.Sinks[sink].Dispatcher.LogOf(k.Database); {
	case paused && !k.paused[sink]:
		log.Info("sink is paused: its lanes are given back until it is resumed")
	case !paused && k.paused[sink]:
		log.Info("sink is resumed")
	}
	k.paused[sink] = paused
}

// states are those of the sinks that do not go well.
func (k *Coordinator) states() map[string]store.SinkState {
	states := make(map[string]store.SinkState)
	for name, s := range k.Sinks {
		if state := s.Dispatcher.State(); state.Holds() {
			states[name] = state
		}
	}
	return states
}

// isNews says whether states are worth reporting before the regular time: that is so
// where one begins or ends. A throttling that goes on is reported with the next
// heartbeat.
func (k *Coordinator) isNews(states map[string]store.SinkState) bool {
	return !maps.EqualFunc(k.reported, states, func(a, b store.SinkState) bool {
		return a.BreakerOpen == b.BreakerOpen && a.ThrottledUntil.IsZero() == b.ThrottledUntil.IsZero() &&
			(a.AllDestinations == 0) == (b.AllDestinations == 0)
	})
}

// lost says whether a lane went, or may have gone, to another forwarder.
func lost(err error) bool { return settle.Lost(err) }
