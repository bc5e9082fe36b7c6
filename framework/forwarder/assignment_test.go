package forwarder

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/store"
)

const testPatience = time.Minute

// office is a model of forwarders that look at a roster, each at its own time, and
// do what assign tells them.
type office struct {
	roster  store.Membership
	leaving map[store.Lane]string // given back, but not yet free
}

func (o *office) look(me store.Member) (moved bool) {
	leaving := func(l store.Lane) bool { return o.leaving[l] == me.Owner }
	take, leave := assign(o.roster, me, leaving, testPatience)
	for i := range o.roster.Lanes {
		l := &o.roster.Lanes[i]
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

// drained ends the work on all lanes that are given back.
func (o *office) drained() {
	for i := range o.roster.Lanes {
		l := &o.roster.Lanes[i]
		if owner := o.leaving[l.Lane]; owner != "" && owner == l.Owner {
			l.Owner = ""
		}
	}
	clear(o.leaving)
}

func (o *office) load() map[string]int {
	load := make(map[string]int)
	for _, m := range o.roster.Members {
		load[m.Owner] = 0
	}
	for _, l := range o.roster.Lanes {
		load[l.Owner]++
	}
	return load
}

func TestLanesSpreadEvenlyFromAnyBeginningAndThenRest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := &office{leaving: make(map[store.Lane]string)}
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 1, 5, rapid.ID).Draw(t, "members")
		sinks := []string{"events", "mail", "partner"}[:rapid.IntRange(1, 3).Draw(t, "sinks")]
		for _, name := range names {
			o.roster.Members = append(o.roster.Members, store.Member{Owner: name, Sinks: sinks})
		}
		owners := append([]string{"", "gone"}, names...)
		for _, sink := range sinks {
			for _, l := range store.Lanes(sink, rapid.IntRange(1, 9).Draw(t, "lanes of "+sink)) {
				o.roster.Lanes = append(o.roster.Lanes, store.LaneState{Lane: l, Owner: rapid.SampledFrom(owners).Draw(t, "owner")})
			}
		}
		for i := range o.roster.Lanes { // a lease of one who died runs out at some time
			if o.roster.Lanes[i].Owner == "gone" {
				o.roster.Lanes[i].Owner = ""
			}
		}
		moves := 0
		for round := 0; ; round++ {
			require.Less(t, round, 20, "they come to rest")
			moved := false
			for _, m := range rapid.Permutation(o.roster.Members).Draw(t, "order") {
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
		least, most := len(o.roster.Lanes), 0
		load := o.load()
		require.Zero(t, load[""], "nothing is left to nobody")
		for _, n := range load {
			least, most = min(least, n), max(most, n)
		}
		require.LessOrEqual(t, most-least, 1, "%v", load)
	})
}

func TestAForwarderTakesOnlyWhatItCanDeliver(t *testing.T) {
	t.Parallel()
	mailer := store.Member{Owner: "a", Sinks: []string{"mail"}}
	other := store.Member{Owner: "b", Sinks: []string{"events", "mail"}}
	roster := store.Membership{Members: []store.Member{mailer, other}}
	for _, sink := range []string{"events", "mail"} {
		for _, l := range store.Lanes(sink, 2) {
			roster.Lanes = append(roster.Lanes, store.LaneState{Lane: l, Free: 2 * testPatience})
		}
	}
	stays := func(store.Lane) bool { return false }
	take, leave := assign(roster, mailer, stays, testPatience)
	require.Equal(t, store.Lanes("mail", 2), take)
	require.Empty(t, leave)

	roster.Lanes[2].Wanted, roster.Lanes[3].Wanted = 3, 3
	take, _ = assign(roster, mailer, stays, testPatience)
	require.Empty(t, take, "the lanes are to be cut anew")
}

func TestALaneThatNobodyTakesIsForEverybody(t *testing.T) {
	t.Parallel()
	idle := store.Member{Owner: "a", Sinks: []string{"mail"}} // says that it lives, and does nothing
	busy := store.Member{Owner: "b", Sinks: []string{"mail"}}
	roster := store.Membership{Members: []store.Member{idle, busy}}
	for i, l := range store.Lanes("mail", 3) {
		roster.Lanes = append(roster.Lanes, store.LaneState{Lane: l, Owner: []string{"b", "b", ""}[i]})
	}
	leaving := func(store.Lane) bool { return false }
	take, _ := assign(roster, busy, leaving, testPatience)
	require.Empty(t, take, "a is to have it")
	roster.Lanes[2].Free = testPatience + 1
	take, _ = assign(roster, busy, leaving, testPatience)
	require.Equal(t, []store.Lane{roster.Lanes[2].Lane}, take)
}
