package coordinate

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// Assign returns which lanes a forwarder takes and which of its lanes it releases. All forwarders
// that read the same membership come to the same conclusion: a free lane goes to the forwarder
// with the fewest lanes, and a forwarder with two more than another releases one. If a lane
// stays free for longer than patience, any forwarder takes it. Lanes of a sink that is paused,
// or that will be cut, are left out.
//
// leaving reports the lanes that the forwarder has and is about to release.
//
// It takes O(lanes * (log sinks + forwarders)).
func Assign(membership store.Membership, me store.Member, leaving func(store.Lane) bool, patience time.Duration) (take, leave []store.Lane) {
	a := newAssignment(membership, me)
	var free []store.LaneState
	var mine []store.Lane
	for _, l := range membership.Lanes {
		switch {
		case l.Wanted != 0 || l.Paused:
		case l.Owner == "" || l.Owner == me.Owner && leaving(l.Lane):
			free = append(free, l)
		case l.Owner == me.Owner:
			s := a.sink(l.Lane.Sink)
			s.mine = append(s.mine, len(mine))
			mine = append(mine, l.Lane)
			a.add(s, a.me, 1)
		default:
			if owner, ok := a.numbers[l.Owner]; ok { // false for the unexpired lease of a dead forwarder
				a.add(a.sink(l.Lane.Sink), owner, 1)
			}
		}
	}
	for _, l := range free {
		s := a.sink(l.Lane.Sink)
		owner, ok := a.fewest(s)
		if !ok {
			continue
		}
		a.add(s, owner, 1)
		late := l.Free > patience && slices.Contains(me.Sinks, l.Lane.Sink)
		if l.Owner == "" && (owner == a.me || late) {
			take = append(take, l.Lane)
		}
	}
	for _, i := range a.surplus() {
		leave = append(leave, mine[i])
	}
	return take, leave
}

// assignment is how many lanes each forwarder has, or will have. Forwarders are identified by
// their index among the members.
type assignment struct {
	members []store.Member
	numbers map[string]int // by owner
	me      int
	load    []int // lanes of all sinks
	sinks   map[string]*sink
}

// sink is the assignment of one sink's lanes.
type sink struct {
	members []int // members that can deliver to it
	load    []int // its number of lanes, by member
	me      int   // this forwarder
	mine    []int // lanes of this forwarder; the last one is released first
}

func newAssignment(membership store.Membership, me store.Member) *assignment {
	a := &assignment{members: membership.Members, numbers: make(map[string]int), sinks: make(map[string]*sink)}
	if !slices.ContainsFunc(a.members, func(m store.Member) bool { return m.Owner == me.Owner }) {
		a.members = append(slices.Clone(a.members), me)
		slices.SortFunc(a.members, func(m, n store.Member) int { return cmp.Compare(m.Owner, n.Owner) })
	}
	for i, m := range a.members {
		a.numbers[m.Owner] = i
	}
	a.me = a.numbers[me.Owner]
	a.load = make([]int, len(a.members))
	for i, m := range a.members {
		for _, name := range m.Sinks {
			if s := a.sink(name); len(s.members) == 0 || s.members[len(s.members)-1] != i { // ignores repeated names
				s.members = append(s.members, i)
			}
		}
	}
	return a
}

func (a *assignment) sink(name string) *sink {
	s := a.sinks[name]
	if s == nil {
		s = &sink{load: make([]int, len(a.members)), me: a.me}
		a.sinks[name] = s
	}
	return s
}

func (a *assignment) add(s *sink, member, n int) {
	a.load[member] += n
	s.load[member] += n
}

// fewest returns the member with the fewest lanes among those that can deliver to a sink, and
// among several of these the one with the fewest of that sink.
func (a *assignment) fewest(s *sink) (member int, ok bool) {
	for _, m := range s.members {
		if !ok || a.load[m] < a.load[member] || a.load[m] == a.load[member] && s.load[m] < s.load[member] {
			member, ok = m, true
		}
	}
	return member, ok
}

// surplus returns the lanes to release, one at a time: among the sinks of which another member
// with two fewer lanes could take one, it chooses the sink of which this forwarder has the most,
// and its last lane.
func (a *assignment) surplus() (leave []int) {
	var most mostLanes
	for _, s := range a.sinks {
		if len(s.mine) > 0 {
			most = append(most, s)
		}
	}
	heap.Init(&most)
	for len(most) > 0 {
		s := most[0]
		to, ok := a.fewest(s)
		if !ok || a.load[to] > a.load[a.me]-2 {
			heap.Pop(&most) // for good: this forwarder only loses lanes, and the others gain
			continue
		}
		last := len(s.mine) - 1
		leave = append(leave, s.mine[last])
		s.mine = s.mine[:last]
		a.add(s, a.me, -1)
		a.add(s, to, 1)
		if last == 0 {
			heap.Pop(&most)
		} else {
			heap.Fix(&most, 0)
		}
	}
	return leave
}

// mostLanes is a heap of the sinks of which this forwarder has lanes: first the one with the
// most lanes, and among several the one with the last lane.
type mostLanes []*sink

func (h mostLanes) Len() int { return len(h) }

func (h mostLanes) Less(i, j int) bool {
	s, r := h[i], h[j]
	if s.load[s.me] != r.load[r.me] {
		return s.load[s.me] > r.load[r.me]
	}
	return s.mine[len(s.mine)-1] > r.mine[len(r.mine)-1]
}

func (h mostLanes) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *mostLanes) Push(s any) { *h = append(*h, s.(*sink)) }

func (h *mostLanes) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
