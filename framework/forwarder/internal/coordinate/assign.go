// Package coordinate decides which forwarder works on which lane.
package coordinate

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// Assign returns which lanes a forwarder takes up and which of its own it lets go of. All
// forwarders that look at the same membership come to the same conclusion: a free lane
// goes to the forwarder with the fewest, and one that has two more than another lets one
// go. Any forwarder takes up a lane that stays free for longer than patience. Lanes of a
// sink that is paused, or is to be cut into another number of them, are left out.
//
// leaving are lanes that the forwarder has and is about to give back.
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
			if owner, ok := a.numbers[l.Owner]; ok { // a lease of one that died has not run out yet
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

// assignment is which forwarder has how many lanes, as it is and as it should become.
// Forwarders go by their number among the members.
type assignment struct {
	members []store.Member
	numbers map[string]int // by owner
	me      int
	load    []int // lanes of all sinks
	sinks   map[string]*sink
}

// sink is what the assignment knows of one.
type sink struct {
	members []int // that can deliver to it
	load    []int // its lanes, by member
	me      int   // the member that we are
	mine    []int // those that we have, the last one the first to go
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
			if s := a.sink(name); len(s.members) == 0 || s.members[len(s.members)-1] != i { // named once
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

// fewest is the member with the fewest lanes of those that can deliver to a sink; of
// several the one with the fewest of that sink.
func (a *assignment) fewest(s *sink) (member int, ok bool) {
	for _, m := range s.members {
		if !ok || a.load[m] < a.load[member] || a.load[m] == a.load[member] && s.load[m] < s.load[member] {
			member, ok = m, true
		}
	}
	return member, ok
}

// surplus picks the lanes that we let go of, one at a time: of the sinks from which
// another member with two fewer could take one, the sink of which we have the most, and
// its last lane.
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
			heap.Pop(&most) // for good: we only get fewer, and the others more
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

// mostLanes is a heap, by container/heap, of sinks of which we have lanes: first the one
// of which we have the most, and of several the one with the last lane.
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
