package simulation

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder/internal/coordinate"
	"github.com/waybill-go/waybill/framework/store"
)

// Change is what happens to a fleet.
type Change string

// The changes.
const (
	Death     Change = "death"     // a forwarder is killed: it releases nothing
	Departure Change = "departure" // a forwarder stops gracefully: it releases its lanes
	Arrival   Change = "arrival"   // one more forwarder starts
)

// Handover is a fleet with evenly spread lanes, and what happens to it. All forwarders have the
// same sinks. A forwarder waits for a twentieth of its lease between two looks; it renews its
// membership and each lane after a third.
type Handover struct {
	Change     Change
	Forwarders int // before the change, at least 2 unless one joins
	Sinks      int // default 1
	Lanes      int // of each sink, up to 1,024
	// Lease is how long membership and lanes last; default 15 s.
	Lease time.Duration
	// Look is how long the database takes to list the membership, default 3 ms; Acquire how long
	// to lease a lane, default 1 ms. A forwarder leases its lanes one after the other.
	Look, Acquire time.Duration
	// Drain is how long a lane that is released has deliveries in flight; default 20 ms.
	Drain time.Duration
	// Seed is for the times at which forwarders look and renew.
	Seed uint64
}

// Handed is the result of a Handover. Times are since the change.
type Handed struct {
	// Even is when every lane had a running forwarder, and none had two more lanes than another.
	Even time.Duration
	// Idle is how long no forwarder worked on a lane, on average over the lanes that moved, and
	// LongestIdle the longest.
	Idle, LongestIdle time.Duration
	Moved             int // lanes that changed their forwarder
	Looks             int // of all forwarders, until Even
}

// errNeverEven: Assign has not spread the lanes evenly.
var errNeverEven = errors.New("the lanes are not even after ten leases")

// WithDefaults returns the configuration with the defaults of unset fields.
func (h Handover) WithDefaults() Handover {
	h.Sinks = cmp.Or(h.Sinks, 1)
	h.Lease = cmp.Or(h.Lease, 15*time.Second)
	h.Look = cmp.Or(h.Look, 3*time.Millisecond)
	h.Acquire = cmp.Or(h.Acquire, time.Millisecond)
	h.Drain = cmp.Or(h.Drain, 20*time.Millisecond)
	return h
}

func (h Handover) validate() error {
	least := 2
	if h.Change == Arrival {
		least = 1
	}
	switch {
	case h.Change != Death && h.Change != Departure && h.Change != Arrival:
		return fmt.Errorf("there is no change %q", h.Change)
	case h.Forwarders < least || h.Sinks < 1 || h.Lanes < 1 || h.Lanes > store.Slots:
		return fmt.Errorf("%d forwarders, %d sinks of %d lanes: use at least %d, 1, and 1 to %d", h.Forwarders, h.Sinks, h.Lanes, least, store.Slots)
	case min(h.Lease, h.Look, h.Acquire, h.Drain) <= 0:
		return errors.New("a time is not above 0")
	}
	return nil
}

// Run simulates the change.
func (h Handover) Run() (Handed, error) {
	h = h.WithDefaults()
	if err := h.validate(); err != nil {
		return Handed{}, err
	}
	f := newFleet(h)
	f.change()
	for !f.even() {
		step, ok := f.pop(10 * h.Lease)
		if !ok {
			return Handed{}, errNeverEven
		}
		step()
	}
	return f.handed(), nil
}

// fleet is the forwarders and the tables that they share.
type fleet struct {
	Handover
	events[func()]
	members []*member // by name
	lanes   []*leased
	numbers map[store.Lane]int // of lanes
	free    int                // lanes
	changed int                // number of changes of lanes in the tables
	looks   int
}

// member is a forwarder.
type member struct {
	store.Member
	alive   bool
	listed  bool          // it has not left
	seen    time.Duration // when its membership was last renewed
	looking bool
	nudged  bool
	wake    int // number of the planned look; looks with other numbers were replaced
	load    int
	settled view // the last view in which there was nothing to do
}

// view identifies what a look finds: with the same view, Assign gives the same result.
type view struct{ members, changed int }

// leased is a lane.
type leased struct {
	lane    store.Lane
	owner   *member // nil: free
	first   *member // before the change
	leaving bool
	renewed time.Duration
	free    time.Duration // since when the tables show no owner
	stopped time.Duration // since when no forwarder works on it
	idle    time.Duration // how long no forwarder worked on it
}

func newFleet(h Handover) *fleet {
	f := &fleet{Handover: h, numbers: make(map[store.Lane]int)}
	chance := rand.New(rand.NewPCG(h.Seed, uint64(h.Forwarders)))
	within := func(d time.Duration) time.Duration { return time.Duration(chance.Float64() * float64(d)) }
	var sinks []string
	for number := range h.Sinks {
		sinks = append(sinks, fmt.Sprintf("sink-%05d", number))
	}
	for number := range h.Forwarders {
		m := &member{Member: store.Member{Owner: fmt.Sprintf("forwarder-%05d", number), Sinks: sinks}, alive: true, listed: true, seen: -within(h.Lease / 3)}
		f.members = append(f.members, m)
		f.plan(m, within(f.pause()))
	}
	for _, sink := range sinks {
		for _, lane := range store.Lanes(sink, h.Lanes) {
			owner := f.members[len(f.lanes)%len(f.members)]
			owner.load++
			f.numbers[lane] = len(f.lanes)
			f.lanes = append(f.lanes, &leased{lane: lane, owner: owner, first: owner, renewed: -within(h.Lease / 3)})
		}
	}
	return f
}

func (f *fleet) pause() time.Duration { return f.Lease / 20 }

// change applies the change at the beginning, to the last forwarder.
func (f *fleet) change() {
	last := f.members[len(f.members)-1]
	switch f.Change {
	case Death:
		last.alive = false
	case Departure:
		last.alive = false
		f.add(f.Acquire, func() { last.listed = false; f.nudge() })
		for _, l := range f.lanes {
			if l.owner == last {
				f.leave(l)
			}
		}
	case Arrival:
		m := &member{Member: store.Member{Owner: fmt.Sprintf("forwarder-%05d", len(f.members)), Sinks: last.Sinks}, alive: true, seen: -f.Lease}
		f.members = append(f.members, m)
		f.plan(m, 0)
	}
}

// plan replaces the time of a forwarder's next look.
func (f *fleet) plan(m *member, at time.Duration) {
	m.wake++
	wake := m.wake
	f.add(at, func() {
		if m.alive && m.wake == wake {
			f.look(m)
		}
	})
}

// nudge makes all forwarders look now: the database announces that a lane may be free.
func (f *fleet) nudge() {
	for _, m := range f.members {
		if m.looking {
			m.nudged = true
		} else if m.alive {
			f.plan(m, f.now)
		}
	}
}

// look is one turn of a forwarder: a heartbeat if it is due, and what Assign decides.
func (f *fleet) look(m *member) {
	f.looks++
	m.looking = true
	if f.now-m.seen >= f.Lease/3 {
		m.seen, m.listed = f.now, true
	}
	f.add(f.now+f.Look, func() { f.decide(m) })
}

func (f *fleet) decide(m *member) {
	var take, leave []store.Lane
	members := f.listed()
	for _, l := range f.lanes {
		f.renew(l)
	}
	if now := (view{len(members), f.changed}); f.free > 0 || m.settled != now {
		leaving := func(l store.Lane) bool { return f.lanes[f.numbers[l]].leaving }
		take, leave = coordinate.Assign(store.Membership{Members: members, Lanes: f.states()}, m.Member, leaving, 4*f.pause())
		if len(take)+len(leave) == 0 {
			m.settled = now
		}
	}
	for _, lane := range leave {
		f.leave(f.lanes[f.numbers[lane]])
	}
	for i, lane := range take {
		l := f.lanes[f.numbers[lane]]
		f.add(f.now+time.Duration(i+1)*f.Acquire, func() { f.take(m, l) })
	}
	f.add(f.now+time.Duration(len(take))*f.Acquire, func() { f.looked(m) })
}

// looked plans the next look.
func (f *fleet) looked(m *member) {
	m.looking = false
	if m.nudged {
		m.nudged = false
		f.plan(m, f.now)
		return
	}
	f.plan(m, f.now+f.pause())
}

// listed returns the members that the tables show.
func (f *fleet) listed() (list []store.Member) {
	for _, m := range f.members {
		if m.listed && f.now < m.seen+f.Lease {
			list = append(list, m.Member)
		}
	}
	return list
}

// states returns the lanes as the tables show them.
func (f *fleet) states() []store.LaneState {
	list := make([]store.LaneState, len(f.lanes))
	for i, l := range f.lanes {
		list[i] = store.LaneState{Lane: l.lane}
		if l.owner != nil {
			list[i].Owner, list[i].Left = l.owner.Owner, l.renewed+f.Lease-f.now
		} else {
			list[i].Free = f.now - l.free
		}
	}
	return list
}

// renew updates a lane: its forwarder has renewed the lease meanwhile, or it has expired.
func (f *fleet) renew(l *leased) {
	switch {
	case l.owner == nil:
	case l.owner.alive || l.leaving:
		for l.renewed+f.Lease/3 <= f.now {
			l.renewed += f.Lease / 3
		}
	case f.now >= l.renewed+f.Lease:
		l.free = l.renewed + f.Lease
		f.release(l)
	}
}

func (f *fleet) leave(l *leased) {
	l.leaving = true
	f.changed++
	f.add(f.now+f.Drain, func() {
		l.free, l.stopped = f.now, f.now
		f.release(l)
		f.nudge()
	})
}

func (f *fleet) release(l *leased) {
	f.free++
	f.changed++
	l.owner.load--
	l.owner, l.leaving = nil, false
}

func (f *fleet) take(m *member, l *leased) {
	f.renew(l)
	if l.owner != nil {
		return // another forwarder was faster
	}
	l.owner, l.renewed, l.idle = m, f.now, f.now-l.stopped
	m.load++
	f.free--
	f.changed++
}

// even reports whether all lanes are worked on, and no forwarder has two more than another.
func (f *fleet) even() bool {
	var loads []int
	for _, m := range f.members {
		if m.alive {
			loads = append(loads, m.load)
		} else if m.load > 0 {
			return false
		}
	}
	if slices.Max(loads)-slices.Min(loads) > 1 {
		return false
	}
	return !slices.ContainsFunc(f.lanes, func(l *leased) bool { return l.owner == nil })
}

func (f *fleet) handed() Handed {
	r := Handed{Even: f.now, Looks: f.looks}
	for _, l := range f.lanes {
		if l.owner == l.first {
			continue
		}
		r.Moved++
		r.Idle += l.idle
		r.LongestIdle = max(r.LongestIdle, l.idle)
	}
	if r.Moved > 0 {
		r.Idle /= time.Duration(r.Moved)
	}
	return r
}
