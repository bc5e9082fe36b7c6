package forwarder

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/notification"
)

// turnsModel is turns as one would write it down: lists of what waits, in order, and of
// what is in flight.
type turnsModel struct {
	turns
	lanes   []*lane
	made    int
	waiting map[bool]map[string][]*item // by whether it was parked, and by group
	flying  map[bool]map[*item]string
}

func newTurnsModel() *turnsModel {
	m := &turnsModel{turns: newTurns(), lanes: []*lane{{}, {}, {}}, waiting: make(map[bool]map[string][]*item), flying: make(map[bool]map[*item]string)}
	for _, parked := range []bool{false, true} {
		m.waiting[parked] = make(map[string][]*item)
		m.flying[parked] = make(map[*item]string)
	}
	return m
}

func isParked(it *item) bool { return it.page == nil }

func (m *turnsModel) newItem(t *rapid.T) *item {
	it := &item{lane: rapid.SampledFrom(m.lanes).Draw(t, "lane")}
	m.made++
	it.Envelope = &notification.Envelope{ID: fmt.Sprint(m.made), Offset: int64(m.made)}
	if rapid.Bool().Draw(t, "fresh") {
		it.page = &page{}
	}
	return it
}

func drawGroup(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "group")
}

func (m *turnsModel) Push(t *rapid.T) {
	it, group, front := m.newItem(t), drawGroup(t), rapid.Bool().Draw(t, "front")
	m.push(it, group, front)
	m.modelPush(it, group, front)
}

func (m *turnsModel) modelPush(it *item, group string, front bool) {
	w := m.waiting[isParked(it)]
	if front {
		w[group] = slices.Insert(w[group], 0, it)
	} else {
		w[group] = append(w[group], it)
	}
}

// inFlight counts those of a group, or of all where it is "*".
func (m *turnsModel) inFlight(parked bool, group string) (n int) {
	for _, g := range m.flying[parked] {
		if group == "*" || g == group {
			n++
		}
	}
	return n
}

func (m *turnsModel) count(parked bool) (n int) {
	for _, items := range m.waiting[parked] {
		n += len(items)
	}
	return n
}

func (m *turnsModel) Pop(t *rapid.T) {
	n := rapid.SampledFrom([]int{1, 2, 16, 100}).Draw(t, "n")
	share := max(1, n/parkedShare)
	from := m.next(n)
	if from == nil {
		require.Zero(t, m.count(false), "fresh ones may always go")
		require.True(t, m.count(true) == 0 || n > 1 && m.inFlight(true, "*") >= n-share)
		return
	}
	it := m.pop(from)
	parked := isParked(it)
	switch {
	case parked && m.count(false) > 0:
		require.Less(t, m.inFlight(true, "*"), share, "beside fresh ones, parked ones have their share")
	case parked && n > 1:
		require.Less(t, m.inFlight(true, "*"), n-share, "they leave room for fresh ones")
	}
	var group string
	for name, items := range m.waiting[parked] {
		if slices.Contains(items, it) {
			group = name
		}
	}
	require.Same(t, it, m.waiting[parked][group][0], "the first of its group")
	for name, items := range m.waiting[parked] {
		if len(items) > 0 {
			require.LessOrEqual(t, m.inFlight(parked, group), m.inFlight(parked, name), "the group with the fewest in flight")
		}
	}
	m.waiting[parked][group] = m.waiting[parked][group][1:]
	m.flying[parked][it] = group
}

func (m *turnsModel) drawFlying(t *rapid.T) *item {
	all := slices.Collect(maps.Keys(m.flying[false]))
	all = slices.AppendSeq(all, maps.Keys(m.flying[true]))
	if len(all) == 0 {
		t.Skip("nothing is in flight")
	}
	slices.SortFunc(all, func(a, b *item) int { return int(a.Offset - b.Offset) })
	return rapid.SampledFrom(all).Draw(t, "item")
}

func (m *turnsModel) Done(t *rapid.T) {
	it := m.drawFlying(t)
	m.done(it)
	delete(m.flying[isParked(it)], it)
}

func (m *turnsModel) PutBack(t *rapid.T) {
	it, front := m.drawFlying(t), rapid.Bool().Draw(t, "front")
	group := m.flying[isParked(it)][it]
	m.done(it)
	delete(m.flying[isParked(it)], it)
	m.push(it, group, front)
	m.modelPush(it, group, front)
}

func (m *turnsModel) Join(t *rapid.T) {
	it, group := m.newItem(t), drawGroup(t)
	m.join(it, group)
	m.flying[isParked(it)][it] = group
}

func (m *turnsModel) Drop(t *rapid.T) {
	l := rapid.SampledFrom(m.lanes).Draw(t, "lane")
	want := 0
	for _, groups := range m.waiting {
		for name, items := range groups {
			n := len(items)
			groups[name] = slices.DeleteFunc(items, func(it *item) bool { return it.lane == l })
			want += n - len(groups[name])
		}
	}
	require.Equal(t, want, m.drop(l))
}

func (m *turnsModel) Check(t *rapid.T) {
	require.Equal(t, m.count(false)+m.count(true), m.len())
	for parked, f := range map[bool]*fair{false: &m.fresh, true: &m.parked} {
		require.Equal(t, m.count(parked), f.count)
		require.Equal(t, m.inFlight(parked, "*"), f.inFlight)
		for name, g := range f.groups {
			require.Equal(t, m.inFlight(parked, name), g.inFlight, "group %q", name)
			if name != "" {
				require.Positive(t, g.inFlight+g.items.len(), "an empty group is forgotten")
			}
		}
		var all []*item
		for _, items := range m.waiting[parked] {
			all = append(all, items...)
		}
		var seen []*item
		for it := range m.all() {
			if isParked(it) == parked {
				seen = append(seen, it)
			}
		}
		require.ElementsMatch(t, all, seen)
	}
}

func TestTurnsLoseNothingAndGiveNothingTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newTurnsModel()
		t.Repeat(map[string]func(*rapid.T){
			"": m.Check, "push": m.Push, "pop": m.Pop, "done": m.Done, "put back": m.PutBack, "join": m.Join, "drop": m.Drop,
		})
	})
}

// turnOf makes an item that is from the log, or parked.
func turnOf(id string, parked bool) *item {
	it := &item{lane: &lane{}}
	it.Envelope = &notification.Envelope{ID: id}
	if !parked {
		it.page = &page{}
	}
	return it
}

func TestNeitherFreshNorParkedDeliveriesStarve(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 16, 64} {
		tt := newTurns()
		for i := range 2000 {
			tt.push(turnOf(fmt.Sprint("fresh", i), false), "", false)
			tt.push(turnOf(fmt.Sprint("parked", i), true), "", false)
		}
		picked := map[bool]int{}
		var flying []*item
		for range 1000 {
			if len(flying) == n { // the oldest one ends
				tt.done(flying[0])
				flying = flying[1:]
			}
			// Asked twice, as by one who finds that the rate lets nothing go.
			tt.next(n)
			it := tt.pop(tt.next(n))
			picked[isParked(it)]++
			flying = append(flying, it)
		}
		require.InDelta(t, 1000/parkedShare, picked[true], 10, "parked ones of %d slots", n)
	}
}

func TestParkedDeliveriesLeaveRoomForFreshOnes(t *testing.T) {
	t.Parallel()
	for n, most := range map[int]int{1: 1, 2: 1, 16: 15, 64: 60} {
		tt := newTurns()
		for i := range 100 {
			tt.push(turnOf(fmt.Sprint(i), true), "", false)
		}
		flying := 0
		for flying < n && tt.next(n) != nil {
			tt.pop(tt.next(n))
			flying++
		}
		require.Equal(t, most, flying, "of %d slots", n)
	}
}

func TestAGroupThatIsNewEachTimeIsNotFirstEachTime(t *testing.T) {
	t.Parallel()
	tt := newTurns()
	for i := range 100 {
		tt.push(turnOf(fmt.Sprint("many", i), false), "many", false)
	}
	one := turnOf("one", false)
	tt.push(one, "one", false)
	picked := map[string]int{}
	for range 100 {
		it := tt.pop(tt.next(1))
		picked[it.group.name]++
		tt.done(it)
		if it == one { // the next one of its key, which is the only one of its group
			tt.push(one, "one", false)
		}
	}
	require.InDelta(t, 50, picked["one"], 1)
}

func TestRegroupingKeepsAllInOrder(t *testing.T) {
	t.Parallel()
	tt := newTurns()
	var flying []*item
	for i := range 30 {
		it := turnOf(fmt.Sprint(i), false)
		it.Offset = int64(i)
		tt.push(it, fmt.Sprint("group", i%3), false)
	}
	for range 6 {
		flying = append(flying, tt.pop(tt.next(16)))
	}
	tt.regroup(func(it *item) string { return fmt.Sprint("group", it.Offset%2) })
	require.Equal(t, 24, tt.len())
	require.Equal(t, 6, tt.fresh.inFlight)
	for _, it := range flying {
		tt.done(it)
	}
	last := map[int64]int64{0: -1, 1: -1}
	for range 24 {
		it := tt.pop(tt.next(16))
		require.Equal(t, fmt.Sprint("group", it.Offset%2), it.group.name)
		require.Greater(t, it.Offset, last[it.Offset%2])
		last[it.Offset%2] = it.Offset
	}
	require.Zero(t, tt.len())
	require.Equal(t, 24, tt.fresh.inFlight)
	require.Nil(t, tt.next(16))
}
