package coordinate_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// written is who has how many lanes, as it is and as it should become.
type written struct {
	members []store.Member
	load    map[string]int            // lanes by owner
	ofSink  map[string]map[string]int // lanes by owner, of each sink
}

// assignAsWritten is the rule of Assign as one would write it down, in quadratic time: each
// time that a lane is let go of, all lanes are looked at.
func assignAsWritten(membership store.Membership, me store.Member, leaving func(store.Lane) bool, patience time.Duration) (take, leave []store.Lane) {
	a := written{members: membership.Members, load: make(map[string]int), ofSink: make(map[string]map[string]int)}
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

func (a *written) add(owner string, lane store.Lane, n int) {
	a.load[owner] += n
	if a.ofSink[lane.Sink] == nil {
		a.ofSink[lane.Sink] = make(map[string]int)
	}
	a.ofSink[lane.Sink][owner] += n
}

// fewest is who has the fewest lanes of those that can deliver to a lane's sink;
// of several who has the fewest of that sink.
func (a *written) fewest(lane store.Lane) (owner string, ok bool) {
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

// surplus picks the lane that me releases, and the forwarder that gets it: a lane of the sink
// of which me has the most. -1: none.
func (a *written) surplus(mine []store.Lane, me string) (index int, to string) {
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
