package fairqueue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// item is an item of the queue.
type item struct {
	Ticket
	number int
	lane   int
}

func byNumber(a, b *item) int { return cmp.Compare(a.number, b.number) }

// from returns the origin of an item that is parked, or not.
func from(parked bool) Origin {
	if parked {
		return FromParked
	}
	return FromLog
}

func isParked(it *item) bool { return it.Origin == FromParked }

// model is the queue in its simplest form: lists of waiting items, in order, and the items in flight.
type model struct {
	*Queue[*item]
	made    int
	waiting map[bool]map[string][]*item // by whether it was parked, and by group
	holds   map[string]bool
	flying  map[bool]map[*item]string
}

func newModel() *model {
	m := &model{Queue: New[*item](), holds: make(map[string]bool), waiting: make(map[bool]map[string][]*item), flying: make(map[bool]map[*item]string)}
	for _, parked := range []bool{false, true} {
		m.waiting[parked] = make(map[string][]*item)
		m.flying[parked] = make(map[*item]string)
	}
	return m
}

func (m *model) newItem(t *rapid.T) *item {
	m.made++
	return &item{
		Ticket: Ticket{Origin: from(rapid.Bool().Draw(t, "parked"))},
		number: m.made, lane: rapid.IntRange(1, 3).Draw(t, "lane"),
	}
}

func drawGroup(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "group")
}

func (m *model) Push(t *rapid.T) {
	it, group, front := m.newItem(t), drawGroup(t), rapid.Bool().Draw(t, "front")
	m.Queue.Push(it, group, front)
	m.modelPush(it, group, front)
}

func (m *model) modelPush(it *item, group string, front bool) {
	w := m.waiting[isParked(it)]
	if front {
		w[group] = slices.Insert(w[group], 0, it)
	} else {
		w[group] = append(w[group], it)
	}
}

// inFlight counts the items in flight of a group; "*" means all.
func (m *model) inFlight(parked bool, group string) (n int) {
	for _, g := range m.flying[parked] {
		if group == "*" || g == group {
			n++
		}
	}
	return n
}

func (m *model) count(parked bool) (n int) {
	for _, items := range m.waiting[parked] {
		n += len(items)
	}
	return n
}

// free counts the waiting items whose group is not held.
func (m *model) free(parked bool) (n int) {
	for group, items := range m.waiting[parked] {
		if !m.holds[group] {
			n += len(items)
		}
	}
	return n
}

func (m *model) Hold(t *rapid.T) {
	group, hold := drawGroup(t), rapid.Bool().Draw(t, "hold")
	m.Queue.Hold(group, hold)
	m.holds[group] = hold
}

func (m *model) Release(*rapid.T) {
	m.Queue.Release()
	clear(m.holds)
}

func (m *model) Pop(t *rapid.T) {
	n := rapid.SampledFrom([]int{1, 2, 16, 100}).Draw(t, "n")
	share := max(1, n/ParkedShare)
	from, ok := m.Next(n)
	if !ok {
		require.Zero(t, m.free(false), "fresh items may always go")
		require.True(t, m.free(true) == 0 || n > 1 && m.inFlight(true, "*") >= n-share)
		return
	}
	it := m.Queue.Pop(from)
	require.Equal(t, from, it.Origin)
	parked := isParked(it)
	switch {
	case parked && m.free(false) > 0:
		require.Less(t, m.inFlight(true, "*"), share, "beside fresh items, parked ones get their share")
	case parked && n > 1:
		require.Less(t, m.inFlight(true, "*"), n-share, "parked items leave room for fresh ones")
	}
	var group string
	for name, items := range m.waiting[parked] {
		if slices.Contains(items, it) {
			group = name
		}
	}
	require.Same(t, it, m.waiting[parked][group][0], "the first of its group")
	require.False(t, m.holds[group], "its group is not held")
	for name, items := range m.waiting[parked] {
		if len(items) > 0 && !m.holds[name] {
			require.LessOrEqual(t, m.inFlight(parked, group), m.inFlight(parked, name), "the group with the fewest in flight")
		}
	}
	m.waiting[parked][group] = m.waiting[parked][group][1:]
	m.flying[parked][it] = group
}

func (m *model) drawFlying(t *rapid.T) *item {
	all := slices.Collect(maps.Keys(m.flying[false]))
	all = slices.AppendSeq(all, maps.Keys(m.flying[true]))
	if len(all) == 0 {
		t.Skip("nothing is in flight")
	}
	slices.SortFunc(all, byNumber)
	return rapid.SampledFrom(all).Draw(t, "item")
}

func (m *model) Done(t *rapid.T) {
	it := m.drawFlying(t)
	m.Queue.Done(it)
	delete(m.flying[isParked(it)], it)
}

func (m *model) PutBack(t *rapid.T) {
	it, front := m.drawFlying(t), rapid.Bool().Draw(t, "front")
	group := m.flying[isParked(it)][it]
	if group == regrouped {
		group = drawGroup(t)
	}
	m.Queue.Done(it)
	delete(m.flying[isParked(it)], it)
	m.Queue.Push(it, group, front)
	m.modelPush(it, group, front)
}

func (m *model) Join(t *rapid.T) {
	it, group := m.newItem(t), drawGroup(t)
	m.Queue.Join(it, group)
	m.flying[isParked(it)][it] = group
}

// Drop removes the waiting items of a lane, and may push them again.
func (m *model) Drop(t *rapid.T) {
	lane, again := rapid.IntRange(1, 3).Draw(t, "lane"), rapid.Bool().Draw(t, "again")
	ofLane := func(it *item) bool { return it.lane == lane }
	dropped, want := m.Queue.Drop(ofLane), 0
	for _, parked := range []bool{false, true} {
		groups := m.waiting[parked]
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			var expected []*item
			items := groups[name]
			for _, it := range items {
				if ofLane(it) {
					expected = append(expected, it)
				}
			}
			want += len(expected)
			ofGroup := slices.DeleteFunc(slices.Clone(dropped), func(it *item) bool { return !slices.Contains(items, it) })
			require.True(t, slices.Equal(expected, ofGroup), "the items of group %q, in order", name)
			groups[name] = slices.DeleteFunc(slices.Clone(items), ofLane)
			if !again {
				continue
			}
			for _, it := range expected {
				m.Queue.Push(it, name, false)
			}
			groups[name] = append(groups[name], expected...)
		}
	}
	require.Len(t, dropped, want)
}

// regrouped is the model's group of the items that were in flight when the groups changed.
const regrouped = "regrouped"

func (m *model) Regroup(t *rapid.T) {
	n := rapid.IntRange(1, 3).Draw(t, "groups")
	groupOf := func(it *item) string { return []string{"a", "b", ""}[it.number%n] }
	m.Queue.Regroup(groupOf, byNumber)
	for parked, groups := range m.waiting {
		all := slices.Concat(slices.Collect(maps.Values(groups))...)
		slices.SortFunc(all, byNumber)
		clear(groups)
		for _, it := range all {
			m.modelPush(it, groupOf(it), false)
		}
		for it := range m.flying[parked] {
			m.flying[parked][it] = regrouped
		}
	}
}

func (m *model) Check(t *rapid.T) {
	require.Equal(t, m.count(false)+m.count(true), m.Len())
	for parked, p := range map[bool]*part[*item]{false: &m.fresh, true: &m.parked} {
		require.Equal(t, m.count(parked), p.count)
		require.Equal(t, m.inFlight(parked, "*"), p.inFlight)
		for name, g := range p.groups {
			require.Equal(t, m.inFlight(parked, name), g.inFlight, "group %q", name)
			if name != "" {
				require.Positive(t, g.inFlight+g.items.len(), "an empty group is removed")
			}
		}
		var all []*item
		for _, items := range m.waiting[parked] {
			all = append(all, items...)
		}
		var seen []*item
		for it := range m.All() {
			if isParked(it) == parked {
				seen = append(seen, it)
			}
		}
		require.ElementsMatch(t, all, seen)
	}
}

func TestAQueueReturnsEachItemOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := newModel()
		t.Repeat(map[string]func(*rapid.T){
			"": m.Check, "push": m.Push, "pop": m.Pop, "done": m.Done, "put back": m.PutBack, "join": m.Join, "drop": m.Drop, "regroup": m.Regroup,
			"hold": m.Hold, "release": m.Release,
		})
	})
}

// queued returns a queue with this many fresh and parked items of one group.
func queued(fresh, parked int) *Queue[*item] {
	q := New[*item]()
	for i := range fresh {
		q.Push(&item{number: i}, "", false)
	}
	for i := range parked {
		q.Push(&item{number: i, Ticket: Ticket{Origin: FromParked}}, "", false)
	}
	return q
}

// pop takes the next item, which must exist.
func pop(t require.TestingT, q *Queue[*item], slots int) *item {
	// Next is called twice, as by a caller that the rate stops after the first call.
	q.Next(slots)
	from, ok := q.Next(slots)
	require.True(t, ok)
	return q.Pop(from)
}

func TestNeitherNewNorParkedItemsStarve(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 16, 64} {
		q := queued(2000, 2000)
		picked := map[bool]int{}
		var flying []*item
		for range 1000 {
			if len(flying) == n { // the oldest one ends
				q.Done(flying[0])
				flying = flying[1:]
			}
			it := pop(t, q, n)
			picked[isParked(it)]++
			flying = append(flying, it)
		}
		require.InDelta(t, 1000/ParkedShare, picked[true], 10, "parked ones of %d slots", n)
	}
}

func TestParkedItemsLeaveRoomForNewOnes(t *testing.T) {
	t.Parallel()
	for n, most := range map[int]int{1: 1, 2: 1, 16: 15, 64: 60} {
		q := queued(0, 100)
		flying := 0
		for ; flying < n; flying++ {
			from, ok := q.Next(n)
			if !ok {
				break
			}
			q.Pop(from)
		}
		require.Equal(t, most, flying, "of %d slots", n)
	}
}

func TestItemsThatComeToAHeldGroupWait(t *testing.T) {
	t.Parallel()
	q := New[*item]()
	q.Hold("slow", true)
	late := &item{number: 1}
	q.Push(late, "slow", false)
	_, ok := q.Next(16)
	require.False(t, ok)
	q.Push(&item{number: 2}, "other", false)
	require.Equal(t, 2, pop(t, q, 16).number)
	_, ok = q.Next(16)
	require.False(t, ok)
	q.Hold("slow", false)
	require.Same(t, late, pop(t, q, 16))
}

func TestAGroupThatReturnsEachTimeIsNotAlwaysFirst(t *testing.T) {
	t.Parallel()
	q := New[*item]()
	for range 100 {
		q.Push(&item{}, "many", false)
	}
	one := &item{}
	q.Push(one, "one", false)
	picked := map[string]int{}
	for range 100 {
		it := pop(t, q, 1)
		picked[it.group.name]++
		q.Done(it)
		if it == one { // the next one of its key, which is the only one of its group
			q.Push(one, "one", false)
		}
	}
	require.InDelta(t, 50, picked["one"], 1)
}

func TestRegroupingKeepsTheOrder(t *testing.T) {
	t.Parallel()
	q := New[*item]()
	for i := range 30 {
		q.Push(&item{number: i}, fmt.Sprint("group", i%3), false)
	}
	var flying []*item
	for range 6 {
		flying = append(flying, pop(t, q, 16))
	}
	q.Regroup(func(it *item) string { return fmt.Sprint("group", it.number%2) }, byNumber)
	require.Equal(t, 24, q.Len())
	require.Equal(t, 6, q.fresh.inFlight)
	for _, it := range flying {
		q.Done(it)
	}
	last := map[int]int{0: -1, 1: -1}
	for range 24 {
		it := pop(t, q, 16)
		require.Equal(t, fmt.Sprint("group", it.number%2), it.group.name)
		require.Greater(t, it.number, last[it.number%2])
		last[it.number%2] = it.number
	}
	require.Zero(t, q.Len())
	require.Equal(t, 24, q.fresh.inFlight)
	_, ok := q.Next(16)
	require.False(t, ok)
}

func TestACopyOfAnItemEndsItsTurn(t *testing.T) {
	t.Parallel()
	q := queued(0, 3)
	copied := *pop(t, q, 2)
	_, ok := q.Next(2)
	require.False(t, ok)
	q.Done(&copied)
	pop(t, q, 2)
}

func TestQueuingAnItemAllocatesNothing(t *testing.T) {
	q := queued(1000, 1000)
	allocated := testing.AllocsPerRun(1000, func() {
		it := pop(t, q, 16)
		q.Done(it)
		q.Push(it, "", false)
	})
	require.Zero(t, allocated)
}
