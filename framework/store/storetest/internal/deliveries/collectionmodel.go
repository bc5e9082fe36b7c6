package deliveries

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/store"
)

// modelOfCollections lets lanes collect and close, and collections end, die, come back and lose members, and compares
// all members with a model. Everything is due at once.
func modelOfCollections(t *testing.T, o *kit.Outbox) {
	rapid.Check(t, func(rt *rapid.T) {
		o.Exec(t, `DELETE FROM outbox_parked`, `DELETE FROM outbox_cursors`, `DELETE FROM outbox_collections`)
		m := &collectionModel{o: o, t: t, members: make(map[int64]*modelMember), groups: make(map[string]*modelGroup)}
		for _, l := range store.Lanes("mail", 2) {
			m.leases = append(m.leases, o.HoldLane(t, l, "w1"))
		}
		rt.Repeat(map[string]func(*rapid.T){
			"collect": m.collect,
			"close":   m.close,
			"end":     m.end,
			"discard": m.discard,
			"requeue": m.requeue,
			"":        m.check,
		})
	})
}

type collectionModel struct {
	o       *kit.Outbox
	t       *testing.T
	leases  []store.Lease
	members map[int64]*modelMember // by offset
	groups  map[string]*modelGroup
	last    int64 // offset
}

type modelMember struct {
	store.Parked
	number string // of its collection
	dead   bool
}

// modelGroup is a group with a row.
type modelGroup struct {
	lane    int
	counted bool // it had open members since it was closed
	closed  string
}

var modelGroups = []string{"a", "b", "c"}

// of returns the members of a collection, or open ones, in log order.
func (m *collectionModel) of(group, number string, dead bool) (list []*modelMember) {
	for _, p := range m.members {
		if p.Group == group && p.number == number && p.dead == dead {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *modelMember) int { return cmp.Compare(a.Envelope.Offset, b.Envelope.Offset) })
	return list
}

func (m *collectionModel) collect(rt *rapid.T) {
	lane := rapid.IntRange(0, len(m.leases)-1).Draw(rt, "lane")
	var list []store.Parked
	for range rapid.IntRange(1, 5).Draw(rt, "members") {
		group := rapid.SampledFrom(modelGroups).Draw(rt, "group")
		if m.groups[group] == nil {
			m.groups[group] = &modelGroup{lane: lane}
		}
		m.groups[group].counted = true
		if len(m.members) > 0 && rapid.IntRange(0, 5).Draw(rt, "again") == 0 {
			p := m.member(rt).Parked // read from the log again
			p.Group, p.Envelope.Slot = group, m.leases[lane].Lane.Slots.First
			list = append(list, p)
			continue
		}
		m.last++
		p := member(m.last, group)
		p.Envelope.Slot = m.leases[lane].Lane.Slots.First
		m.members[m.last] = &modelMember{Parked: p}
		list = append(list, p)
	}
	terms := store.CollectTerms{Wait: time.Nanosecond, MaxWait: time.Nanosecond, Size: rapid.IntRange(0, 4).Draw(rt, "size")}
	collect(rt, m.o, m.leases[lane], terms, list...)
}

// member draws one of the members.
func (m *collectionModel) member(rt *rapid.T) *modelMember {
	return m.members[rapid.SampledFrom(slices.Sorted(maps.Keys(m.members))).Draw(rt, "member")]
}

func (m *collectionModel) close(rt *rapid.T) {
	lane, size, newest := rapid.IntRange(0, len(m.leases)-1).Draw(rt, "lane"), rapid.IntRange(1, 4).Draw(rt, "size"), rapid.IntRange(0, 3).Draw(rt, "newest") == 0
	got := closeAll(rt, m.o, m.leases[lane], func(q *store.CloseQuery) { q.Size, q.Newest = size, newest })
	numbers := m.numbers(rt)
	var want store.Closed
	for name, g := range m.groups {
		if g.lane != lane || g.closed != "" || !g.counted {
			continue
		}
		open := m.of(name, "", false)
		if len(open) == 0 {
			delete(m.groups, name)
			continue
		}
		take := open[:min(size, len(open))]
		rest := len(open) > len(take)
		if newest {
			for _, p := range take[:len(take)-1] {
				delete(m.members, p.Envelope.Offset)
				want.Superseded++
			}
			if rest {
				continue
			}
			take = take[len(take)-1:]
		}
		g.closed, g.counted = numbers[take[0].Envelope.Offset], rest
		require.NotEmpty(rt, g.closed)
		for _, p := range take {
			p.number = g.closed
		}
		want.Collections++
	}
	got.Next = time.Time{}
	require.Equal(rt, want, got)
}

// numbers returns the numbers of the collections of members.
func (m *collectionModel) numbers(rt *rapid.T) map[int64]string {
	found, err := m.o.FindParked(m.t.Context(), store.ParkedFilter{Sink: "mail"}, store.ParkedPlace{}, 10_000)
	require.NoError(rt, err)
	numbers := make(map[int64]string)
	for i := range found {
		numbers[found[i].Envelope.Offset] = found[i].Collection
	}
	return numbers
}

// collection draws a collection with members, all dead or none.
func (m *collectionModel) collection(rt *rapid.T, dead bool) (store.CollectionRef, []*modelMember) {
	known := make(map[store.CollectionRef]bool)
	for _, p := range m.members {
		if p.number != "" && p.dead == dead {
			known[store.CollectionRef{Group: p.Group, Number: p.number}] = true
		}
	}
	if len(known) == 0 {
		rt.Skip("none")
	}
	refs := slices.SortedFunc(maps.Keys(known), func(a, b store.CollectionRef) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Number, b.Number))
	})
	ref := refs[rapid.IntRange(0, len(refs)-1).Draw(rt, "collection")]
	return ref, m.of(ref.Group, ref.Number, dead)
}

// end delivers a collection, or lets it die.
func (m *collectionModel) end(rt *rapid.T) {
	ref, of := m.collection(rt, false)
	found, _, err := m.o.Store.Members(m.t.Context(), "mail", []store.CollectionRef{ref})
	require.NoError(rt, err)
	require.Len(rt, found, len(of))
	c := store.Checkpoint{Lease: m.leases[0], TTL: time.Hour, Collected: []store.CollectionRef{ref}}
	if rapid.Bool().Draw(rt, "dies") {
		for i := range found {
			found[i].State, found[i].DueAt = store.StateDead, time.Time{}
			of[i].dead = true
		}
		c.Park = found
	} else {
		c.Unpark = kit.Refs(found...)
		for _, p := range of {
			delete(m.members, p.Envelope.Offset)
		}
	}
	require.NoError(rt, m.o.Checkpoint(m.t.Context(), c))
	m.ended(ref)
}

func (m *collectionModel) ended(ref store.CollectionRef) {
	if g := m.groups[ref.Group]; g != nil {
		if g.closed == ref.Number {
			g.closed = ""
		}
		if g.closed == "" && !g.counted {
			delete(m.groups, ref.Group)
		}
	}
}

// place selects one delivery.
func place(p *modelMember) store.ParkedFilter {
	return store.ParkedFilter{Places: []store.ParkedPlace{{Sink: "mail", Ref: store.RefOf(&p.Envelope)}}}
}

func (m *collectionModel) discard(rt *rapid.T) {
	if len(m.members) == 0 {
		rt.Skip("none")
	}
	p := m.member(rt)
	require.Equal(rt, 1, operate(m.t, m.o, "discard", 10, place(p)))
	delete(m.members, p.Envelope.Offset)
	if p.number != "" && len(m.of(p.Group, p.number, false)) == 0 {
		m.ended(store.CollectionRef{Group: p.Group, Number: p.number})
	}
}

func (m *collectionModel) requeue(rt *rapid.T) {
	_, of := m.collection(rt, true)
	require.Equal(rt, 1, operate(m.t, m.o, "requeue", 10, place(of[rapid.IntRange(0, len(of)-1).Draw(rt, "member")])))
	for _, p := range of {
		p.dead = false
	}
}

// check compares all members and groups, and what is due: the first member of each closed collection.
func (m *collectionModel) check(rt *rapid.T) {
	var want, got, first []string
	begun := make(map[store.CollectionRef]bool)
	for _, offset := range slices.Sorted(maps.Keys(m.members)) {
		p := m.members[offset]
		want = append(want, fmt.Sprint(offset, p.Group, p.number, p.dead))
		ref := store.CollectionRef{Group: p.Group, Number: p.number}
		if p.number != "" && !p.dead && !begun[ref] {
			begun[ref] = true
			first = append(first, fmt.Sprint(offset, p.number))
		}
	}
	found, err := m.o.FindParked(m.t.Context(), store.ParkedFilter{Sink: "mail"}, store.ParkedPlace{}, 10_000)
	require.NoError(rt, err)
	for i := range found {
		got = append(got, fmt.Sprint(found[i].Envelope.Offset, found[i].Group, found[i].Collection, found[i].State == store.StateDead))
	}
	require.Equal(rt, want, got)
	var due []string
	for _, lease := range m.leases {
		list, _, err := m.o.Due(m.t.Context(), store.DueQuery{Lane: lease.Lane, Now: tomorrow().Add(time.Hour), Limit: 1000})
		require.NoError(rt, err)
		for i := range list {
			due = append(due, fmt.Sprint(list[i].Envelope.Offset, list[i].Collection))
		}
	}
	slices.Sort(due)
	slices.Sort(first)
	require.Equal(rt, first, due)
	groups := ""
	for _, name := range slices.Sorted(maps.Keys(m.groups)) {
		groups += fmt.Sprintf("collect_group=%s closed=%s \n", name, m.groups[name].closed)
	}
	require.Equal(rt, groups, m.o.Dump(m.t, `SELECT collect_group, closed FROM outbox_collections ORDER BY collect_group`))
}
