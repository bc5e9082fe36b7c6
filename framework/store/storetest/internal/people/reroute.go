package people

import (
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// rerouteFacts are about delivering rows that had no route.
var rerouteFacts = []kit.Fact{
	{"unrouted deliveries are counted by type, without those that still have no route", rerouteCount},
	{"unrouted deliveries go to all sinks of their types, each key in order", rerouted},
	{"a reroute works in batches, also if the log no longer has the rows", rerouteBatches},
	{"a row that a sink has not settled yet stays unrouted", rerouteUnsettled},
	{"a sink gets nothing that it has parked or has a receipt for", rerouteTwice},
	{"a rerouted delivery goes behind the parked ones of its key", rerouteBehindParked},
	{"a reroute raises the revision of the sinks that get something, and of _unrouted", rerouteRevision},
	{"a reroute to a sink without cursors, or for no action, changes nothing", rerouteRefused},
}

// hasNoRoute publishes rows that all sinks have settled, and parks them as unrouted. It returns the
// lease of "mail".
func hasNoRoute(t *testing.T, o *kit.Outbox, change func(p *store.Parked), rows ...notification.Envelope) store.Lease {
	t.Helper()
	lease := settled(t, o, rows...)
	parked, _ := o.Read(t, nil, kit.All, 1000)
	unrouted := o.Hold(t, store.SinkUnrouted)
	o.Write(t, unrouted, func(c *store.Checkpoint) {
		for _, e := range parked {
			p := store.Parked{Envelope: e, State: store.StateDead, Attempt: 1, LastError: "no route", FirstParkedAt: kit.Moment}
			if change != nil {
				change(&p)
			}
			c.Park = append(c.Park, p)
		}
	})
	return lease
}

// settleAhead makes a sink settle some offsets while its cursor is before all rows.
func settleAhead(t *testing.T, o *kit.Outbox, sink string, offsets ...int64) {
	t.Helper()
	page := o.Page(t, 1)
	o.Write(t, o.Hold(t, sink), func(c *store.Checkpoint) {
		c.Position, c.Settled = page.Start, store.OffsetRanges(offsets...)
	})
}

// keyed returns envelopes of a type with these keys.
func keyed(typ string, keys ...string) (envelopes []notification.Envelope) {
	for _, key := range keys {
		envelopes = append(envelopes, kit.Envelope(typ, key))
	}
	return envelopes
}

var ordersToMail = store.RerouteQuery{Sinks: map[string]notification.TypeFilter{"mail": {Prefixes: []string{"order."}}}}

// reroute runs batches until the end.
func reroute(t *testing.T, o *kit.Outbox, q store.RerouteQuery, limit int) (changed, left int) {
	t.Helper()
	o.BeginAction(t, "reroute")
	b := store.RerouteBatch{RerouteQuery: q, Action: "reroute", Limit: limit}
	for {
		result, err := o.Reroute(t.Context(), b)
		require.NoError(t, err)
		require.LessOrEqual(t, result.Changed+result.Left, limit)
		changed, left = changed+result.Changed, left+result.Left
		if result.Done {
			action := o.ActionOf(t, "reroute")
			require.EqualValues(t, changed, action.Count)
			return changed, left
		}
		b.After = result.Last
	}
}

func rerouteCount(t *testing.T, o *kit.Outbox) {
	hasNoRoute(t, o, func(p *store.Parked) {
		if p.Envelope.Offset == 2 {
			p.State, p.DueAt = store.StateScheduled, kit.Later()
		}
	}, append(keyed("order.placed", "k", "k", "l"), keyed("parcel.lost", "k")...)...)
	counts, changed, err := o.CountReroute(t.Context(), ordersToMail)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), changed, time.Minute)
	require.Equal(t, []store.RerouteCount{
		{Type: "order.placed", State: store.StateDead, Count: 2},
		{Type: "order.placed", State: store.StateScheduled, Count: 1},
	}, counts)

	q := ordersToMail
	q.Filter = store.ParkedFilter{Sink: "mail", Key: "l"}
	counts, _, err = o.CountReroute(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, []store.RerouteCount{{Type: "order.placed", State: store.StateDead, Count: 1}}, counts)

	counts, _, err = o.CountReroute(t.Context(), store.RerouteQuery{})
	require.NoError(t, err)
	require.Empty(t, counts)
}

func rerouted(t *testing.T, o *kit.Outbox) {
	then := kit.Later()
	rows := append(keyed("order.placed", "k", "l", "k", ""), keyed("order.paid", "k")...)
	rows = append(rows, keyed("parcel.lost", "k")...)
	hasNoRoute(t, o, func(p *store.Parked) {
		if p.Envelope.Offset == 5 {
			p.State, p.DueAt = store.StateScheduled, then
		}
	}, rows...)
	settleAhead(t, o, "web", 1, 2, 3, 4, 5, 6)

	q := store.RerouteQuery{Sinks: map[string]notification.TypeFilter{
		"mail": {Prefixes: []string{"order."}},
		"web":  {Names: []string{"order.placed"}},
	}}
	changed, left := reroute(t, o, q, 100)
	require.Equal(t, 5, changed)
	require.Zero(t, left)
	require.Equal(t, []int64{6}, find(t, o, store.ParkedFilter{Sink: store.SinkUnrouted}), "it still has no route")
	require.Equal(t, []int64{1, 2, 3, 4, 5}, find(t, o, store.ParkedFilter{Sink: "mail"}))
	require.Equal(t, []int64{1, 2, 3, 4}, find(t, o, store.ParkedFilter{Sink: "web"}))

	due, next := o.DueAt(t, soon())
	require.Equal(t, []int64{1, 2, 4}, kit.Offsets(due))
	kit.RequireTime(t, then, next)
	require.Zero(t, due[0].Attempt)
	require.Empty(t, due[0].LastError)
	require.Equal(t, rows[0].ID, due[0].Envelope.ID)
	require.Equal(t, rows[0].Type, due[0].Envelope.Type)
	require.WithinDuration(t, time.Now(), due[0].FirstParkedAt, time.Minute, "its time with this sink begins now")
	require.Equal(t, []int64{3}, kit.Offsets(blockedOf(t, o, "k")))
	require.Equal(t, []int64{5}, find(t, o, store.ParkedFilter{Sink: "mail", States: []store.State{store.StateScheduled}}))
}

func rerouteBatches(t *testing.T, o *kit.Outbox) {
	hasNoRoute(t, o, nil, keyed("order.placed", "k", "", "k", "l", "k", "")...)
	o.Exec(t, `DELETE FROM outbox WHERE {offset} <= 3`)
	changed, left := reroute(t, o, ordersToMail, 2)
	require.Equal(t, 6, changed)
	require.Zero(t, left)
	got, _ := o.DueOffsets(t, asOfSoon)
	require.Equal(t, []int64{1, 2, 4, 6}, got)
	require.Equal(t, []int64{3, 5}, kit.Offsets(blockedOf(t, o, "k")))
	require.Empty(t, find(t, o, store.ParkedFilter{Sink: store.SinkUnrouted}))
}

func rerouteUnsettled(t *testing.T, o *kit.Outbox) {
	hasNoRoute(t, o, nil, keyed("order.placed", "k", "k", "k")...)
	settleAhead(t, o, "web", 2)
	q := ordersToMail
	q.Sinks = map[string]notification.TypeFilter{"mail": notification.AllTypes, "web": notification.AllTypes}
	changed, left := reroute(t, o, q, 1)
	require.Equal(t, 1, changed)
	require.Equal(t, 2, left)
	require.Equal(t, []int64{1, 3}, find(t, o, store.ParkedFilter{Sink: store.SinkUnrouted}))
	require.Equal(t, []int64{2}, find(t, o, store.ParkedFilter{Sink: "mail"}), "no sink gets what stays unrouted")
	require.Equal(t, []int64{2}, find(t, o, store.ParkedFilter{Sink: "web"}))

	o.Exec(t, `DELETE FROM outbox WHERE {offset} = 1`) // the log no longer has it
	changed, left = rerouteMore(t, o, q)
	require.Equal(t, 1, changed)
	require.Equal(t, 1, left)
}

// rerouteMore runs one more batch of the action that reroute began.
func rerouteMore(t *testing.T, o *kit.Outbox, q store.RerouteQuery) (changed, left int) {
	t.Helper()
	result, err := o.Reroute(t.Context(), store.RerouteBatch{RerouteQuery: q, Action: "reroute", Limit: 100})
	require.NoError(t, err)
	return result.Changed, result.Left
}

func rerouteTwice(t *testing.T, o *kit.Outbox) {
	rows := keyed("order.placed", "", "", "")
	lease := hasNoRoute(t, o, nil, rows...)
	was := store.Parked{Envelope: rows[1], State: store.StateDead, Attempt: 7, LastError: "boom", FirstParkedAt: kit.Moment}
	was.Envelope.Offset = 2
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Receipts = []store.Receipt{{Offset: 1, ID: rows[0].ID, Receipt: "ok", Attempt: 1, DeliveredAt: kit.Moment}}
		c.Park = []store.Parked{was}
	})
	changed, _ := reroute(t, o, ordersToMail, 100)
	require.Equal(t, 3, changed, "none of them is unrouted any more")
	require.Empty(t, find(t, o, store.ParkedFilter{Sink: store.SinkUnrouted}))
	got, _ := o.DueOffsets(t, asOfSoon)
	require.Equal(t, []int64{3}, got)
	require.Equal(t, []int64{2}, find(t, o, store.ParkedFilter{Sink: "mail", States: []store.State{store.StateDead}, Error: "boom"}))
}

func rerouteBehindParked(t *testing.T, o *kit.Outbox) {
	lease := hasNoRoute(t, o, nil, keyed("order.placed", "k", "l")...)
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Park = []store.Parked{kit.Retrying(9, "k", kit.Later()), kit.Dead(10, "l")}
	})
	changed, _ := reroute(t, o, ordersToMail, 100)
	require.Equal(t, 2, changed)
	got, _ := o.DueOffsets(t, asOfSoon)
	require.Equal(t, []int64{2}, got)
	require.Equal(t, []int64{1}, kit.Offsets(blockedOf(t, o, "k")))
}

func rerouteRevision(t *testing.T, o *kit.Outbox) {
	hasNoRoute(t, o, nil, append(keyed("order.placed", "k"), keyed("parcel.lost", "k")...)...)
	settleAhead(t, o, "web")
	q := store.RerouteQuery{Sinks: map[string]notification.TypeFilter{"mail": {Prefixes: []string{"order."}}, "web": {Prefixes: []string{"parcel."}}}}
	changed, left := reroute(t, o, q, 1)
	require.Equal(t, []int{1, 1}, []int{changed, left})
	require.NoError(t, o.End(t.Context(), "reroute"))
	require.EqualValues(t, 1, revision(t, o, "mail"))
	require.EqualValues(t, 1, revision(t, o, store.SinkUnrouted))
	require.Zero(t, revision(t, o, "web"), "it has not settled its row yet")
}

func rerouteRefused(t *testing.T, o *kit.Outbox) {
	hasNoRoute(t, o, nil, keyed("order.placed", "k")...)
	o.BeginAction(t, "reroute")
	before := o.DumpAll(t)
	b := store.RerouteBatch{Action: "reroute", Limit: 10, RerouteQuery: store.RerouteQuery{
		Sinks: map[string]notification.TypeFilter{"mail": notification.AllTypes, "new": {Names: []string{"order.placed"}}},
	}}
	_, err := o.Reroute(t.Context(), b)
	require.ErrorIs(t, err, store.ErrUnknownSink)
	require.ErrorContains(t, err, `"new"`)
	b.Sinks = map[string]notification.TypeFilter{"mail": notification.AllTypes, "new": {Names: []string{"order.paid"}}}
	b.Action = "none"
	_, err = o.Reroute(t.Context(), b)
	require.ErrorIs(t, err, store.ErrUnknownAction)
	require.Equal(t, before, o.DumpAll(t))

	b.Action = "reroute"
	result, err := o.Reroute(t.Context(), b)
	require.NoError(t, err, "an unknown sink gets nothing")
	require.Equal(t, 1, result.Changed)
}
