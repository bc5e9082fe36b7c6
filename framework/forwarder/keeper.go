package forwarder

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/forwarder/internal/coordinate"
	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/store"
)

// keeper leases lanes and gives them back. Every forwarder looks at the roster now
// and then, and coordinate.Assign tells each the same; so the work spreads evenly, moves when
// a forwarder dies or leaves, and hardly moves otherwise.
//
// It is for one goroutine; what it starts reports to it.
type keeper struct {
	*run
	pause    time.Duration // between two looks
	failing  *pace.Trouble
	couriers map[string]*courier

	uncut   map[string]bool // sinks whose lanes are not known to be cut
	joined  time.Time
	told    map[string]store.SinkState // with the last sign of life
	held    map[laneID]*held
	paused  map[string]bool               // sinks that a person has paused, as of the last look
	cutting map[string]context.CancelFunc // sinks whose lanes this forwarder cuts anew
	trouble map[laneID]*pace.Trouble
	nudged  chan struct{} // capacity 1: a lane may be free
	ended   chan func()   // what the keeper does when something that it started has ended
}

type laneID struct {
	sink   string
	number int // or wholeSink
}

const wholeSink = -1

func idOf(l store.Lane) laneID { return laneID{l.Sink, l.Number} }

// held is a lane that is worked on.
type held struct {
	stop    context.CancelFunc
	leaving bool
	// revision is that of what is parked, as far as the settler was told by revised.
	revision int64
	revised  chan struct{}
}

// revise tells the settler that a person has changed what is parked.
func (h *held) revise(revision int64) {
	if h.revision == revision {
		return
	}
	h.revision = revision
	select {
	case h.revised <- struct{}{}:
	default: // it is told already
	}
}

func (h *held) leave() {
	h.leaving = true
	h.stop()
}

func newKeeper(r *run) *keeper {
	k := &keeper{
		run:      r,
		pause:    r.config.Lease / 20,
		failing:  pace.NewTrouble(r.config.Logger, "leasing", 0),
		couriers: make(map[string]*courier),
		uncut:    make(map[string]bool),
		held:     make(map[laneID]*held),
		paused:   make(map[string]bool),
		cutting:  make(map[string]context.CancelFunc),
		trouble:  make(map[laneID]*pace.Trouble),
		nudged:   make(chan struct{}, 1),
		ended:    make(chan func()),
	}
	for _, c := range r.couriers {
		k.couriers[c.name] = c
		k.uncut[c.name] = true
	}
	return k
}

// nudge has the keeper look at once. It never blocks.
func (k *keeper) nudge() {
	select {
	case k.nudged <- struct{}{}:
	default:
	}
}

// keep holds lanes until stop is done and all of them are given back.
func (k *keeper) keep() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for k.stop.Err() == nil {
		select {
		case <-k.stop.Done():
		case end := <-k.ended:
			end()
			timer.Reset(k.pause / 8) // somebody may wait for it
		case <-k.nudged:
			timer.Reset(0)
		case <-timer.C:
			pause := k.pause
			if err := k.look(); err == nil {
				k.failing.Over()
			} else if k.stop.Err() == nil {
				pause = k.failing.Met(err)
			}
			timer.Reset(pause)
		}
	}
	k.leave() // or the lanes would be left for this one
	for len(k.held)+len(k.cutting) > 0 {
		end := <-k.ended
		end()
	}
}

// leave tells the others that this forwarder takes no more lanes.
func (k *keeper) leave() {
	ctx, cancel := k.inLease(k.db)
	defer cancel()
	if err := k.config.Store.Leave(ctx, k.owner); err != nil {
		k.config.Logger.Warn("the others will notice later that this forwarder stops", "error", err)
	}
}

// look takes up and lets go of lanes.
func (k *keeper) look() error {
	ctx, cancel := k.inLease(k.stop)
	defer cancel()
	for sink := range k.uncut {
		if err := k.config.Store.Cut(ctx, sink, k.config.Lanes); err != nil {
			return err
		}
		delete(k.uncut, sink)
	}
	me := store.Member{Owner: k.owner, Sinks: slices.Sorted(maps.Keys(k.couriers)), States: k.states()}
	if began := time.Now(); began.Sub(k.joined) >= k.config.Lease/3 || k.isNews(me.States) {
		if err := k.config.Store.Heartbeat(ctx, me, k.config.Lease); err != nil {
			return err
		}
		k.joined, k.told = began, me.States
	}
	roster, err := k.config.Store.Membership(ctx)
	if err != nil {
		return err
	}
	k.inspect(&roster)
	leaving := func(l store.Lane) bool {
		h := k.held[idOf(l)]
		return h != nil && h.leaving || k.cutting[l.Sink] != nil
	}
	take, leave := coordinate.Assign(roster, me, leaving, 4*k.pause)
	for _, lane := range leave {
		k.held[idOf(lane)].leave()
	}
	revisions := make(map[laneID]int64)
	for _, l := range roster.Lanes {
		revisions[idOf(l.Lane)] = l.Revision
	}
	for _, lane := range take {
		if err := k.take(lane, revisions[idOf(lane)]); err != nil {
			return err
		}
	}
	return nil
}

// inspect corrects the roster by what only this forwarder knows, and sees to sinks
// whose lanes are to be cut.
func (k *keeper) inspect(roster *store.Membership) {
	lanes := make(map[string][]store.LaneState)
	for i := range roster.Lanes {
		l := &roster.Lanes[i]
		h := k.held[idOf(l.Lane)]
		switch works := h != nil || k.cutting[l.Lane.Sink] != nil; {
		case works && l.Owner == "":
			l.Owner = k.owner // its lease ran out, and the work on it has not ended yet
		case !works && l.Owner == k.owner:
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
	for sink, c := range k.couriers {
		cursors := lanes[sink]
		if len(cursors) == 0 {
			k.uncut[sink] = true // somebody has forgotten the sink
			continue
		}
		k.tellPaused(c, cursors[0].Paused)
		switch {
		case cursors[0].Wanted != 0 && !cursors[0].Paused:
			k.cutAnew(c, cursors)
		case k.cutting[sink] != nil:
			k.cutting[sink]() // nobody wants it any more
		}
	}
}

// tellPaused says when a sink is paused, and when it is not any more.
func (k *keeper) tellPaused(c *courier, paused bool) {
	switch {
	case paused && !k.paused[c.name]:
		c.log.Info("sink is paused: its lanes are given back until somebody resumes it")
	case !paused && k.paused[c.name]:
		c.log.Info("sink is resumed")
	}
	k.paused[c.name] = paused
}

// take leases a lane and begins the work on it, unless somebody else was quicker.
// revision is that of what is parked, as of a moment before.
func (k *keeper) take(lane store.Lane, revision int64) error {
	c, id := k.couriers[lane.Sink], idOf(lane)
	if k.held[id] != nil || time.Now().Before(k.trouble[id].Until()) {
		return nil
	}
	s := &shift{run: k.run, courier: c, leased: time.Now(), revised: make(chan struct{}, 1)}
	var err error
	s.lease, err = k.acquire(lane)
	if errors.Is(err, store.ErrLeaseHeld) || errors.Is(err, store.ErrLanes) {
		return nil
	}
	if err != nil {
		return err
	}
	s.to = k.poller.since(time.Now())
	failing := k.troubleWith(id, c.log.With("lane", lane.Number), "beginning to work on a lane")
	stop, cancel := context.WithCancel(k.stop)
	k.held[id] = &held{stop: cancel, revision: revision, revised: s.revised}
	go func() {
		defer cancel()
		err := s.work(stop, failing.Over)
		if !lost(err) {
			err = errors.Join(err, k.release(s.lease))
		}
		k.ended <- func() {
			delete(k.held, id)
			k.workedOn(c, lane, err)
		}
	}()
	return nil
}

func (k *keeper) troubleWith(id laneID, log *slog.Logger, what string) *pace.Trouble {
	if k.trouble[id] == nil {
		k.trouble[id] = pace.NewTrouble(log, what, 0)
	}
	return k.trouble[id]
}

// lost says whether a lane went, or may have gone, to somebody else.
func lost(err error) bool {
	return errors.Is(err, store.ErrLeaseLost) || errors.Is(err, store.ErrServerChanged) || errors.Is(err, errLeaseExpired)
}

// workedOn says what is to be said of the end of a shift.
func (k *keeper) workedOn(c *courier, lane store.Lane, err error) {
	switch {
	case err == nil || k.stop.Err() != nil:
	case errors.Is(err, store.ErrPosition), errors.Is(err, store.ErrUnsupported):
		k.fail(&fatalError{err})
	case lost(err):
		c.log.Warn("lane is given up", "lane", lane.Number, "error", err)
	default:
		k.trouble[idOf(lane)].Met(err)
	}
}

// cutAnew gives back the lanes of a sink that is to be cut into another number of
// them. Once nobody has any, whoever leases all of them cuts them anew.
func (k *keeper) cutAnew(c *courier, lanes []store.LaneState) {
	free := true
	for _, l := range lanes {
		if h := k.held[idOf(l.Lane)]; h != nil && !h.leaving {
			h.leave()
		}
		free = free && l.Owner == ""
	}
	id := laneID{c.name, wholeSink}
	if !free || k.cutting[c.name] != nil || time.Now().Before(k.trouble[id].Until()) {
		return
	}
	failing := k.troubleWith(id, c.log, "cutting the lanes anew")
	wanted, cancel := context.WithCancel(k.stop)
	k.cutting[c.name] = cancel
	c.log.Info("cutting the lanes anew", "lanes", len(lanes), "wanted", lanes[0].Wanted)
	go func() {
		defer cancel()
		err := k.recut(wanted, c, lanes)
		k.ended <- func() {
			delete(k.cutting, c.name)
			switch {
			case err == nil:
				failing.Over()
				c.log.Info("the lanes are cut anew", "lanes", lanes[0].Wanted)
			case wanted.Err() != nil, lost(err), errors.Is(err, store.ErrLeaseHeld), errors.Is(err, store.ErrLanes):
				// somebody else does it, or nobody wants it any more
			default:
				failing.Met(err)
			}
		}
	}()
}

// recut brings all lanes of a sink to one place and cuts them there, if that is
// wanted until then.
func (k *keeper) recut(wanted context.Context, c *courier, lanes []store.LaneState) (err error) {
	var leases []store.Lease
	defer func() {
		if err == nil {
			return
		}
		for _, lease := range leases {
			err = errors.Join(err, k.release(lease))
		}
	}()
	leased := time.Now()
	for _, l := range lanes {
		lease, err := k.acquire(l.Lane)
		if err != nil {
			return err
		}
		leases = append(leases, lease)
	}
	ctx, cancel := k.inLease(wanted)
	defer cancel()
	target, err := k.config.Store.Probe(ctx)
	if err != nil {
		return err
	}
	shifts, stop := errgroup.WithContext(wanted)
	for _, lease := range leases {
		s := &shift{run: k.run, courier: c, lease: lease, leased: leased, to: level{target}}
		shifts.Go(func() error { return s.work(stop, func() {}) })
	}
	if err := shifts.Wait(); err != nil {
		return err
	}
	if err := wanted.Err(); err != nil {
		return err
	}
	ctx, cancel = k.inLease(k.db)
	defer cancel()
	return k.config.Store.Recut(ctx, c.name, leases)
}
