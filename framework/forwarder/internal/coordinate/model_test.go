package coordinate_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// assignment has the numbers of lanes of each forwarder, with the changes so far.
type assignment struct {
	members []store.Member
	load    map[string]int            // lanes by owner
	ofSink  map[string]map[string]int // lanes by owner, of each sink
}

// assignSimply is the rule of Assign in its simplest form. Its time is quadratic: it looks at all lanes
// for each lane that it releases.
func assignSimply(membership store.Membership, me store.Member, leaving func(store.Lane) bool, patience time.Duration) (take, leave []store.Lane) {
	a := assignment{members: membership.Members, load: make(map[string]int), ofSink: make(map[string]map[string]int)}
	if !slices.ContainsFunc(a.members, func(m store.Member) bool { return m.Owner == me.Owner }) {
		a.members = append(slices.Clone(a.members), me)
		slices.SortFunc(a.members, func(m, n store.Member) int { return cmp.Compare(m.Owner, n.Owner) })
	}
	var free []store.LaneState
	var mine []store.Lane
	for _, l := range membership.Lanes {
		switch {
		case l.Wanted != 0 || l.Paused:
		case l.Owner == "" || l.Owner == me.Owner && leaving(l.Lane):
			free = append(free, l)
		default:
			a.add(l.Owner, l.Lane, 1)
			if l.Owner == me.Owner {
				mine = append(mine, l.Lane)
			}
		}
	}
	for _, l := range free {
		owner, ok := a.fewest(l.Lane)
		if !ok {
			continue
		}
		a.add(owner, l.Lane, 1)
		late := l.Free > patience && slices.Contains(me.Sinks, l.Lane.Sink)
		if l.Owner == "" && (owner == me.Owner || late) {
			take = append(take, l.Lane)
		}
	}
	for {
		i, to := a.surplus(mine, me.Owner)
		if i < 0 {
			return take, leave
		}
		a.add(me.Owner, mine[i], -1)
		a.add(to, mine[i], 1)
		leave = append(leave, mine[i])
		mine = slices.Delete(mine, i, i+1)
	}
}

func (a *assignment) add(owner string, lane store.Lane, n int) {
	a.load[owner] += n
	if a.ofSink[lane.Sink] == nil {
		a.ofSink[lane.Sink] = make(map[string]int)
	}
	a.ofSink[lane.Sink][owner] += n
}

// fewest returns the forwarder with the fewest lanes among those that can deliver to a lane's sink;
// among several, the one with the fewest lanes of that sink.
func (a *assignment) fewest(lane store.Lane) (owner string, ok bool) {
	of := a.ofSink[lane.Sink]
	for _, m := range a.members {
		if !slices.Contains(m.Sinks, lane.Sink) {
			continue
		}
		if !ok || a.load[m.Owner] < a.load[owner] || a.load[m.Owner] == a.load[owner] && of[m.Owner] < of[owner] {
			owner, ok = m.Owner, true
		}
	}
	return owner, ok
}

// surplus picks a lane for me to release, of the sink of which me has most lanes, and the forwarder that
// gets it. -1: none.
func (a *assignment) surplus(mine []store.Lane, me string) (index int, to string) {
	index = -1
	for i, l := range mine {
		owner, ok := a.fewest(l)
		if !ok || a.load[owner] > a.load[me]-2 {
			continue
		}
		if index < 0 || a.ofSink[l.Sink][me] >= a.ofSink[mine[index].Sink][me] {
			index, to = i, owner
		}
	}
	return index, to
}
