package coordinate_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/forwarder/internal/coordinate"
	"github.com/waybill-go/waybill/framework/store"
)

const testPatience = time.Minute

// fleetModel is a model of forwarders that read a membership at different times and follow Assign.
type fleetModel struct {
	membership store.Membership
	leaving    map[store.Lane]string // released, but not yet free
}

func (o *fleetModel) look(me store.Member) (moved bool) {
	leaving := func(l store.Lane) bool { return o.leaving[l] == me.Owner }
	take, leave := coordinate.Assign(o.membership, me, leaving, testPatience)
	for i := range o.membership.Lanes {
		l := &o.membership.Lanes[i]
		for _, t := range take {
			if t == l.Lane && l.Owner == "" {
				l.Owner, moved = me.Owner, true
			}
		}
		for _, t := range leave {
			if t == l.Lane {
				o.leaving[l.Lane], moved = me.Owner, true
			}
		}
	}
	return moved
}

// drained frees all lanes that are being released.
func (o *fleetModel) drained() {
	for i := range o.membership.Lanes {
		l := &o.membership.Lanes[i]
		if owner := o.leaving[l.Lane]; owner != "" && owner == l.Owner {
			l.Owner = ""
		}
	}
	clear(o.leaving)
}

func (o *fleetModel) load() map[string]int {
	load := make(map[string]int)
	for _, m := range o.membership.Members {
		load[m.Owner] = 0
	}
	for _, l := range o.membership.Lanes {
		load[l.Owner]++
	}
	return load
}

func TestLanesAreDistributedEvenlyFromAnyStateAndThenStay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := &fleetModel{leaving: make(map[store.Lane]string)}
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 1, 5, rapid.ID).Draw(t, "members")
		sinks := []string{"events", "mail", "partner"}[:rapid.IntRange(1, 3).Draw(t, "sinks")]
		for _, name := range names {
			o.membership.Members = append(o.membership.Members, store.Member{Owner: name, Sinks: sinks})
		}
		owners := append([]string{"", "gone"}, names...)
		for _, sink := range sinks {
			for _, l := range store.Lanes(sink, rapid.IntRange(1, 9).Draw(t, "lanes of "+sink)) {
				o.membership.Lanes = append(o.membership.Lanes, store.LaneState{Lane: l, Owner: rapid.SampledFrom(owners).Draw(t, "owner")})
			}
		}
		for i := range o.membership.Lanes { // the lease of a dead forwarder expires eventually
			if o.membership.Lanes[i].Owner == "gone" {
				o.membership.Lanes[i].Owner = ""
			}
		}
		moves := 0
		for round := 0; ; round++ {
			require.Less(t, round, 20, "the lanes stop moving")
			moved := false
			for _, m := range rapid.Permutation(o.membership.Members).Draw(t, "order") {
				if o.look(m) {
					moved = true
					moves++
				}
				if rapid.Bool().Draw(t, "drained") {
					o.drained()
				}
			}
			o.drained()
			if !moved {
				break
			}
		}
		least, most := len(o.membership.Lanes), 0
		load := o.load()
		require.Zero(t, load[""], "every lane has an owner")
		for _, n := range load {
			least, most = min(least, n), max(most, n)
		}
		require.LessOrEqual(t, most-least, 1, "%v", load)
	})
}

func TestAForwarderAcquiresOnlyLanesThatItCanDeliver(t *testing.T) {
	t.Parallel()
	mailer := store.Member{Owner: "a", Sinks: []string{"mail"}}
	other := store.Member{Owner: "b", Sinks: []string{"events", "mail"}}
	membership := store.Membership{Members: []store.Member{mailer, other}}
	for _, sink := range []string{"events", "mail"} {
		for _, l := range store.Lanes(sink, 2) {
			membership.Lanes = append(membership.Lanes, store.LaneState{Lane: l, Free: 2 * testPatience})
		}
	}
	stays := func(store.Lane) bool { return false }
	take, leave := coordinate.Assign(membership, mailer, stays, testPatience)
	require.Equal(t, store.Lanes("mail", 2), take)
	require.Empty(t, leave)

	membership.Lanes[2].Wanted, membership.Lanes[3].Wanted = 3, 3
	take, _ = coordinate.Assign(membership, mailer, stays, testPatience)
	require.Empty(t, take, "a change of the number of lanes comes first")
}

func TestAnyForwarderAcquiresALaneThatStaysFree(t *testing.T) {
	t.Parallel()
	idle := store.Member{Owner: "a", Sinks: []string{"mail"}} // sends heartbeats, and acquires nothing
	busy := store.Member{Owner: "b", Sinks: []string{"mail"}}
	membership := store.Membership{Members: []store.Member{idle, busy}}
	for i, l := range store.Lanes("mail", 3) {
		membership.Lanes = append(membership.Lanes, store.LaneState{Lane: l, Owner: []string{"b", "b", ""}[i]})
	}
	leaving := func(store.Lane) bool { return false }
	take, _ := coordinate.Assign(membership, busy, leaving, testPatience)
	require.Empty(t, take, "a should acquire it")
	membership.Lanes[2].Free = testPatience + 1
	take, _ = coordinate.Assign(membership, busy, leaving, testPatience)
	require.Equal(t, []store.Lane{membership.Lanes[2].Lane}, take)
}

// drawMembership draws members and the owners of lanes, including transient states: owners that are not
// members, and members that cannot deliver their lanes.
func drawMembership(t *rapid.T) store.Membership {
	var m store.Membership
	sinks := []string{"a", "b", "c", "d", "e"}[:rapid.IntRange(1, 5).Draw(t, "sinks")]
	owners := []string{"", "", "gone"}
	for i := range rapid.IntRange(0, 5).Draw(t, "members") {
		owners = append(owners, fmt.Sprint("f", i))
		m.Members = append(m.Members, store.Member{
			Owner: fmt.Sprint("f", i),
			Sinks: rapid.Map(rapid.SliceOfDistinct(rapid.SampledFrom(append(sinks, "other")), rapid.ID[string]), func(s []string) []string {
				slices.Sort(s)
				return s
			}).Draw(t, "can"),
		})
	}
	if rapid.Bool().Draw(t, "alike") { // usually all members have the same configuration
		for i := range m.Members {
			m.Members[i].Sinks = sinks
		}
	}
	skewed := rapid.Bool().Draw(t, "skewed")
	for _, sink := range sinks {
		wanted, paused := rapid.SampledFrom([]int{0, 0, 0, 7}).Draw(t, "wanted"), rapid.IntRange(0, 5).Draw(t, "paused") == 0
		for _, l := range store.Lanes(sink, rapid.IntRange(1, 12).Draw(t, "lanes")) {
			state := store.LaneState{Lane: l, Wanted: wanted, Paused: paused, Owner: rapid.SampledFrom(owners).Draw(t, "owner")}
			if skewed && len(m.Members) > 0 && rapid.IntRange(0, 4).Draw(t, "first") > 0 {
				state.Owner = m.Members[0].Owner
			}
			if state.Owner == "" {
				state.Free = rapid.SampledFrom([]time.Duration{0, testPatience, 2 * testPatience}).Draw(t, "free")
			}
			m.Lanes = append(m.Lanes, state)
		}
	}
	return m
}

func TestLanesAreAssignedAsByTheSimpleRule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMembership(t)
		members := append(slices.Clone(m.Members), store.Member{Owner: "f2-", Sinks: []string{"a", "c", "e"}}) // a forwarder that is not a member yet
		left := rapid.SliceOfN(rapid.IntRange(0, 3), len(m.Lanes), len(m.Lanes)).Draw(t, "leaving")
		for _, me := range members {
			leaving := func(l store.Lane) bool {
				i := slices.IndexFunc(m.Lanes, func(s store.LaneState) bool { return s.Lane == l })
				return left[i] == 0
			}
			wantTake, wantLeave := assignSimply(m, me, leaving, testPatience)
			take, leave := coordinate.Assign(m, me, leaving, testPatience)
			require.Equal(t, wantTake, take, "%s takes", me.Owner)
			require.Equal(t, wantLeave, leave, "%s leaves", me.Owner)
		}
	})
}

// fleet returns a membership of forwarders and of sinks with 8 lanes. The first forwarder has all lanes.
func fleet(forwarders, sinks int) store.Membership {
	var m store.Membership
	names := make([]string, sinks)
	for i := range names {
		names[i] = fmt.Sprintf("sink-%04d", i)
		for _, l := range store.Lanes(names[i], 8) {
			m.Lanes = append(m.Lanes, store.LaneState{Lane: l, Owner: "f00"})
		}
	}
	for i := range forwarders {
		m.Members = append(m.Members, store.Member{Owner: fmt.Sprintf("f%02d", i), Sinks: names})
	}
	return m
}

func BenchmarkAssign(b *testing.B) {
	for _, c := range []struct{ forwarders, sinks int }{{4, 30}, {4, 300}, {4, 3000}, {40, 300}} {
		b.Run(fmt.Sprintf("forwarders=%d/sinks=%d", c.forwarders, c.sinks), func(b *testing.B) {
			m := fleet(c.forwarders, c.sinks)
			for b.Loop() {
				_, leave := coordinate.Assign(m, m.Members[0], func(store.Lane) bool { return false }, time.Second)
				require.Len(b, leave, len(m.Lanes)-len(m.Lanes)/c.forwarders)
			}
		})
	}
}
