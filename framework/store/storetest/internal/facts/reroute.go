package facts

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// rerouteFacts are about delivering rows that had no route.
var rerouteFacts = []fact{
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
func (o *Outbox) hasNoRoute(t *testing.T, change func(p *store.Parked), rows ...notification.Envelope) store.Lease {
	t.Helper()
	lease := o.settled(t, rows...)
	parked, _ := o.Read(t, nil, All, 1000)
	unrouted := o.Hold(t, store.SinkUnrouted)
	o.Write(t, unrouted, func(c *store.Checkpoint) {
		for _, e := range parked {
			p := store.Parked{Envelope: e, State: store.StateDead, Attempt: 1, LastError: "no route", FirstParkedAt: Moment}
			if change != nil {
				change(&p)
			}
			c.Park = append(c.Park, p)
		}
	})
	return lease
}

// settleAhead makes a sink settle some offsets while its cursor is before all rows.
func (o *Outbox) settleAhead(t *testing.T, sink string, offsets ...int64) {
	t.Helper()
	page := o.Page(t, 1)
	o.Write(t, o.Hold(t, sink), func(c *store.Checkpoint) {
		c.Position, c.Settled = page.Start, store.OffsetRanges(offsets...)
	})
}

// keyed returns envelopes of a type with these keys.
func keyed(typ string, keys ...string) (envelopes []notification.Envelope) {
	for _, key := range keys {
		envelopes = append(envelopes, Envelope(typ, key))
	}
	return envelopes
}

var ordersToMail = store.RerouteQuery{Sinks: map[string]notification.TypeFilter{"mail": {Prefixes: []string{"order."}}}}

// reroute runs batches until the end.
func (o *Outbox) reroute(t *testing.T, q store.RerouteQuery, limit int) (changed, left int) {
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

func rerouteCount(t *testing.T, o *Outbox) {
	o.hasNoRoute(t, func(p *store.Parked) {
		if p.Envelope.Offset == 2 {
			p.State, p.DueAt = store.StateScheduled, Later()
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

func rerouted(t *testing.T, o *Outbox) {
	then := Later()
	rows := append(keyed("order.placed", "k", "l", "k", ""), keyed("order.paid", "k")...)
	rows = append(rows, keyed("parcel.lost", "k")...)
	o.hasNoRoute(t, func(p *store.Parked) {
		if p.Envelope.Offset == 5 {
			p.State, p.DueAt = store.StateScheduled, then
		}
	}, rows...)
	o.settleAhead(t, "web", 1, 2, 3, 4, 5, 6)

	q := store.RerouteQuery{Sinks: map[string]notification.TypeFilter{
		"mail": {Prefixes: []string{"order."}},
		"web":  {Names: []string{"order.placed"}},
	}}
	changed, left := o.reroute(t, q, 100)
	require.Equal(t, 5, changed)
	require.Zero(t, left)
	require.Equal(t, []int64{6}, o.Find(t, store.ParkedFilter{Sink: store.SinkUnrouted}), "it still has no route")
	require.Equal(t, []int64{1, 2, 3, 4, 5}, o.Find(t, store.ParkedFilter{Sink: "mail"}))
	require.Equal(t, []int64{1, 2, 3, 4}, o.Find(t, store.ParkedFilter{Sink: "web"}))

	due, next := o.DueAt(t, Soon())
	require.Equal(t, []int64{1, 2, 4}, Offsets(due))
	RequireTime(t, then, next)
	require.Zero(t, due[0].Attempt)
	require.Empty(t, due[0].LastError)
	require.Equal(t, rows[0].ID, due[0].Envelope.ID)
	require.Equal(t, rows[0].Type, due[0].Envelope.Type)
	require.WithinDuration(t, time.Now(), due[0].FirstParkedAt, time.Minute, "its time with this sink begins now")
	require.Equal(t, []int64{3}, Offsets(o.blockedOf(t, "k")))
	require.Equal(t, []int64{5}, o.Find(t, store.ParkedFilter{Sink: "mail", States: []store.State{store.StateScheduled}}))
}

func rerouteBatches(t *testing.T, o *Outbox) {
	o.hasNoRoute(t, nil, keyed("order.placed", "k", "", "k", "l", "k", "")...)
	o.Exec(t, `DELETE FROM outbox WHERE {offset} <= 3`)
	changed, left := o.reroute(t, ordersToMail, 2)
	require.Equal(t, 6, changed)
	require.Zero(t, left)
	got, _ := o.DueOffsets(t, AsOfSoon)
	require.Equal(t, []int64{1, 2, 4, 6}, got)
	require.Equal(t, []int64{3, 5}, Offsets(o.blockedOf(t, "k")))
	require.Empty(t, o.Find(t, store.ParkedFilter{Sink: store.SinkUnrouted}))
}

func rerouteUnsettled(t *testing.T, o *Outbox) {
	o.hasNoRoute(t, nil, keyed("order.placed", "k", "k", "k")...)
	o.settleAhead(t, "web", 2)
	q := ordersToMail
	q.Sinks = map[string]notification.TypeFilter{"mail": notification.AllTypes, "web": notification.AllTypes}
	changed, left := o.reroute(t, q, 1)
	require.Equal(t, 1, changed)
	require.Equal(t, 2, left)
	require.Equal(t, []int64{1, 3}, o.Find(t, store.ParkedFilter{Sink: store.SinkUnrouted}))
	require.Equal(t, []int64{2}, o.Find(t, store.ParkedFilter{Sink: "mail"}), "no sink gets what stays unrouted")
	require.Equal(t, []int64{2}, o.Find(t, store.ParkedFilter{Sink: "web"}))

	o.Exec(t, `DELETE FROM outbox WHERE {offset} = 1`) // the log no longer has it
	changed, left = o.rerouteMore(t, q)
	require.Equal(t, 1, changed)
	require.Equal(t, 1, left)
}

// rerouteMore runs one more batch of the action that reroute began.
func (o *Outbox) rerouteMore(t *testing.T, q store.RerouteQuery) (changed, left int) {
	t.Helper()
	result, err := o.Reroute(t.Context(), store.RerouteBatch{RerouteQuery: q, Action: "reroute", Limit: 100})
	require.NoError(t, err)
	return result.Changed, result.Left
}

func rerouteTwice(t *testing.T, o *Outbox) {
	rows := keyed("order.placed", "", "", "")
	lease := o.hasNoRoute(t, nil, rows...)
	was := store.Parked{Envelope: rows[1], State: store.StateDead, Attempt: 7, LastError: "boom", FirstParkedAt: Moment}
	was.Envelope.Offset = 2
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Receipts = []store.Receipt{{Offset: 1, ID: rows[0].ID, Receipt: "ok", Attempt: 1, DeliveredAt: Moment}}
		c.Park = []store.Parked{was}
	})
	changed, _ := o.reroute(t, ordersToMail, 100)
	require.Equal(t, 3, changed, "none of them is unrouted any more")
	require.Empty(t, o.Find(t, store.ParkedFilter{Sink: store.SinkUnrouted}))
	got, _ := o.DueOffsets(t, AsOfSoon)
	require.Equal(t, []int64{3}, got)
	require.Equal(t, []int64{2}, o.Find(t, store.ParkedFilter{Sink: "mail", States: []store.State{store.StateDead}, Error: "boom"}))
}

func rerouteBehindParked(t *testing.T, o *Outbox) {
	lease := o.hasNoRoute(t, nil, keyed("order.placed", "k", "l")...)
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Park = []store.Parked{Retrying(9, "k", Later()), Dead(10, "l")}
	})
	changed, _ := o.reroute(t, ordersToMail, 100)
	require.Equal(t, 2, changed)
	got, _ := o.DueOffsets(t, AsOfSoon)
	require.Equal(t, []int64{2}, got)
	require.Equal(t, []int64{1}, Offsets(o.blockedOf(t, "k")))
}

func rerouteRevision(t *testing.T, o *Outbox) {
	o.hasNoRoute(t, nil, append(keyed("order.placed", "k"), keyed("parcel.lost", "k")...)...)
	o.settleAhead(t, "web")
	q := store.RerouteQuery{Sinks: map[string]notification.TypeFilter{"mail": {Prefixes: []string{"order."}}, "web": {Prefixes: []string{"parcel."}}}}
	changed, left := o.reroute(t, q, 1)
	require.Equal(t, []int{1, 1}, []int{changed, left})
	require.NoError(t, o.End(t.Context(), "reroute"))
	require.EqualValues(t, 1, o.revision(t, "mail"))
	require.EqualValues(t, 1, o.revision(t, store.SinkUnrouted))
	require.Zero(t, o.revision(t, "web"), "it has not settled its row yet")
}

func rerouteRefused(t *testing.T, o *Outbox) {
	o.hasNoRoute(t, nil, keyed("order.placed", "k")...)
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
