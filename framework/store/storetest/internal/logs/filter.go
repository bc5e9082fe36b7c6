package logs

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

var filterFacts = []kit.Fact{
	{"types are selected by name and by prefix", typeFilters},
	{"many types may be named", manyTypes},
	{"lanes share the log without overlap", lanes},
	{"a filter that matches little still reaches the end", sparseFilter},
	{"rows are selected by the time when they occurred", periods},
}

func typeFilters(t *testing.T, o *kit.Outbox) {
	types := []string{
		"order.placed", "order.paid", "Order.placed", "order", "orderly", "customer.new",
		"a%b", "axb", "a_b", "a[b]", "ab", "a?b", `a\b`, "a'b", `a"b`, "grüße.neu", "grüßen", "_own",
	}
	envelopes := make([]notification.Envelope, len(types))
	for i, typ := range types {
		envelopes[i] = kit.Envelope(typ, "")
	}
	o.Publish(t, envelopes...)

	for _, c := range []struct {
		filter notification.TypeFilter
		want   []string
	}{
		{notification.TypeFilter{}, nil},
		{notification.AllTypes, types},
		{notification.TypeFilter{Names: []string{"order.paid"}}, []string{"order.paid"}},
		{notification.TypeFilter{Names: []string{"order.paid", "order.placed", "unknown"}}, []string{"order.placed", "order.paid"}},
		{notification.TypeFilter{Prefixes: []string{"order."}}, []string{"order.placed", "order.paid"}},
		{notification.TypeFilter{Prefixes: []string{"order"}}, []string{"order.placed", "order.paid", "order", "orderly"}},
		{notification.TypeFilter{Prefixes: []string{"order.", "cust"}, Names: []string{"ab"}}, []string{"order.placed", "order.paid", "customer.new", "ab"}},
		{notification.TypeFilter{Prefixes: []string{""}}, types},
		{notification.TypeFilter{Prefixes: []string{"a%"}}, []string{"a%b"}},
		{notification.TypeFilter{Prefixes: []string{"a_"}}, []string{"a_b"}},
		{notification.TypeFilter{Prefixes: []string{"a["}}, []string{"a[b]"}},
		{notification.TypeFilter{Prefixes: []string{"a?"}}, []string{"a?b"}},
		{notification.TypeFilter{Prefixes: []string{`a\`}}, []string{`a\b`}},
		{notification.TypeFilter{Prefixes: []string{"a'", `a"`}}, []string{"a'b", `a"b`}},
		{notification.TypeFilter{Prefixes: []string{"*", "%", "_", "a*"}}, []string{"_own"}},
		{notification.TypeFilter{Prefixes: []string{"grüße"}}, []string{"grüße.neu", "grüßen"}},
		{notification.TypeFilter{Names: []string{"a%b", "a_b", "a[b]"}}, []string{"a%b", "a_b", "a[b]"}},
		{notification.TypeFilter{Prefixes: []string{"order", "a", "gr"}, Except: true}, []string{"Order.placed", "customer.new", "_own"}},
		{notification.TypeFilter{Prefixes: []string{"_"}}, []string{"_own"}},
		{notification.TypeFilter{Prefixes: []string{"_"}, Except: true}, types[:len(types)-1]},
		{notification.TypeFilter{Prefixes: []string{"grüße"}, Except: true}, slices.DeleteFunc(slices.Clone(types), func(typ string) bool { return typ == "grüße.neu" || typ == "grüßen" })},
		{notification.TypeFilter{Names: types[1:], Except: true}, types[:1]},
		{notification.TypeFilter{Prefixes: []string{""}, Except: true}, nil},
	} {
		filter := store.Filter{Slots: kit.All.Slots, Types: c.filter}
		for _, limit := range []int{1, 3, 100} {
			got, end := o.Read(t, nil, filter, limit)
			var gotTypes []string
			for _, e := range got {
				gotTypes = append(gotTypes, e.Type)
			}
			require.Equal(t, c.want, gotTypes, "%+v", c.filter)
			again, _ := o.Read(t, end, kit.All, limit)
			require.Empty(t, again, "the end is behind the rows that do not match")
		}
	}
}

func manyTypes(t *testing.T, o *kit.Outbox) {
	o.Publish(t, kit.Envelope("type-7", ""), kit.Envelope("other", ""), kit.Envelope("type-1999", ""))
	var f notification.TypeFilter
	for i := range 2000 {
		f.Names = append(f.Names, fmt.Sprint("type-", i))
		f.Prefixes = append(f.Prefixes, fmt.Sprint("prefix-", i))
	}
	got, _ := o.Read(t, nil, store.Filter{Slots: kit.All.Slots, Types: f}, 10)
	require.Len(t, got, 2)
}

func lanes(t *testing.T, o *kit.Outbox) {
	var want []notification.Envelope
	for i := range 64 {
		want = append(want, kit.Envelope("a", fmt.Sprint("key", i%16)), kit.Envelope("a", ""))
	}
	o.Publish(t, want...)

	slotOf := make(map[string]int)
	everything, _ := o.Read(t, nil, kit.All, 100)
	used := make(map[int]bool)
	for _, e := range everything {
		require.GreaterOrEqual(t, e.Slot, 0)
		require.Less(t, e.Slot, store.Slots)
		used[e.Slot] = true
		if slot, known := slotOf[e.Key]; known && e.Key != "" {
			require.Equal(t, slot, e.Slot, "one key, one slot")
		}
		slotOf[e.Key] = e.Slot
	}
	if o.Slots {
		require.Greater(t, len(used), 40, "rows without a key are spread by their id")
	} else {
		require.Equal(t, map[int]bool{0: true}, used)
	}

	for _, count := range []int{1, 2, 3, 8} {
		var got []notification.Envelope
		for _, l := range store.Lanes("mail", count) {
			part, end := o.Read(t, nil, kit.OfLane(l), 5)
			for _, e := range part {
				require.LessOrEqual(t, l.Slots.First, e.Slot)
				require.GreaterOrEqual(t, l.Slots.Last, e.Slot)
			}
			got = append(got, part...)
			rest, _ := o.Read(t, end, kit.All, 5)
			require.Empty(t, rest, "the end is behind the other lanes' rows")
		}
		slices.SortFunc(got, func(a, b notification.Envelope) int { return int(a.Offset - b.Offset) })
		require.Equal(t, kit.IDs(everything), kit.IDs(got), "%d lanes", count)
	}
}

func sparseFilter(t *testing.T, o *kit.Outbox) {
	rare := kit.Envelope("rare", "")
	for range 5 {
		o.Publish(t, kit.Several(200)...)
	}
	o.Publish(t, rare)
	got, end := o.Read(t, nil, store.Filter{Slots: kit.All.Slots, Types: notification.TypeFilter{Names: []string{"rare"}}}, 2)
	require.Equal(t, []string{rare.ID}, kit.IDs(got))
	rest, _ := o.Read(t, end, kit.All, 10)
	require.Empty(t, rest)
}

func periods(t *testing.T, o *kit.Outbox) {
	rows := kit.Several(5)
	for i, after := range []time.Duration{0, time.Microsecond, time.Hour, -time.Hour, time.Second} {
		rows[i].OccurredOn = kit.Moment.Add(after)
	}
	o.Publish(t, rows...)
	for _, c := range []struct {
		since, until time.Time
		want         []int
	}{
		{kit.Moment, time.Time{}, []int{0, 1, 2, 4}},
		{time.Time{}, kit.Moment, []int{3}},
		{kit.Moment, kit.Moment.Add(time.Second), []int{0, 1}},
		{kit.Moment.Add(time.Second), kit.Moment.Add(time.Hour), []int{4}},
		{kit.Moment.Add(2 * time.Hour), time.Time{}, nil},
	} {
		var want []string
		for _, i := range c.want {
			want = append(want, rows[i].ID)
		}
		filter := kit.All
		filter.Since, filter.Until = c.since, c.until
		for _, limit := range []int{1, 100} {
			got, end := o.Read(t, nil, filter, limit)
			require.ElementsMatch(t, want, kit.IDs(got), "%v to %v", c.since, c.until)
			again, _ := o.Read(t, end, kit.All, limit)
			require.Empty(t, again, "the end is behind the rows that do not match")
		}
	}
}
