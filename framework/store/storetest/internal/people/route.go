package people

import (
	"slices"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// routeFacts are about what sinks take.
var routeFacts = []kit.Fact{
	{"a sink takes other types once its lanes and those of _unrouted are free, and a lease says which", routeWaits},
	{"a forwarder whose lease has expired unnoticed writes nothing after a change", routeFences},
	{"what a sink skipped and _unrouted had not read is parked for the sink when a route is added", routeAdded},
	{"what a sink had not read and _unrouted had passed is parked when a route is removed", routeRemoved},
	{"what another sink has, or only skipped, decides whether a row is parked", routeTaken},
	{"what is scheduled under _unrouted, or new there, or read by a sink, goes to the sink that is added", routeMoves},
	{"a change of many rows leaves none between its parts", routeOfMany},
	{"when every type has a route, _unrouted keeps nothing", routeAll},
	{"beside a sink that takes all but reserved types, only what another sink took of those is unrouted", routeAllButReserved},
	{"what is published after a sink was forgotten is unrouted, also what _unrouted has passed", routeForgotten},
	{"_unrouted waits until sinks of an earlier schema tell what they take", routeUnknown},
}

var (
	orders = notification.TypeFilter{Names: []string{"order.placed"}}
	mails  = notification.TypeFilter{Prefixes: []string{"mail."}}
	both   = notification.TypeFilter{Names: []string{"order.placed"}, Prefixes: []string{"mail."}}
)

// route lets sinks take types.
func route(t *testing.T, o *kit.Outbox, sinks map[string]notification.TypeFilter) (done bool) {
	t.Helper()
	require.NoError(t, o.Repeat(func() (err error) { done, err = o.Route(t.Context(), sinks); return err }))
	return done
}

// routed creates the cursors of "mail", "web" and _unrouted, and lets the sinks take types.
func routed(t *testing.T, o *kit.Outbox, mail, web notification.TypeFilter) {
	t.Helper()
	for _, sink := range []string{"mail", "web", store.SinkUnrouted} {
		require.NoError(t, o.Cut(t.Context(), sink, 1))
	}
	require.True(t, route(t, o, map[string]notification.TypeFilter{"mail": mail, "web": web}))
}

func unroutedNow(t *testing.T, o *kit.Outbox) []int64 {
	t.Helper()
	return find(t, o, store.ParkedFilter{Sink: store.SinkUnrouted})
}

func routeWaits(t *testing.T, o *kit.Outbox) {
	routed(t, o, orders, mails)
	lease := o.Hold(t, "mail")
	require.Equal(t, &orders, lease.Types)
	require.False(t, route(t, o, map[string]notification.TypeFilter{"mail": both}))
	for _, l := range o.Members(t).Lanes {
		if l.Lane.Sink == "mail" {
			require.Equal(t, &orders, l.Types)
			require.Equal(t, &both, l.WantedTypes)
		}
	}
	require.NoError(t, o.Release(t.Context(), lease))
	unrouted := o.Hold(t, store.SinkUnrouted)
	require.Equal(t, &notification.TypeFilter{Names: []string{"order.placed"}, Prefixes: []string{"mail."}, Except: true}, unrouted.Types)
	require.False(t, route(t, o, nil))
	require.NoError(t, o.Release(t.Context(), unrouted))
	require.True(t, route(t, o, nil))
	require.Equal(t, &both, o.Hold(t, "mail").Types)
}

// By a clock that was set ahead, the lease of a forwarder that still works has expired.
func routeFences(t *testing.T, o *kit.Outbox) {
	routed(t, o, orders, notification.TypeFilter{})
	o.Publish(t, keyed("mail.sent", "k")...)
	for _, sink := range []string{"mail", store.SinkUnrouted} {
		lease := o.Hold(t, sink)
		page := o.Page(t, 10)
		o.Exec(t, `UPDATE outbox_cursors SET lease_until = {2000-01-01T00:00:00Z}`)
		require.True(t, route(t, o, map[string]notification.TypeFilter{"mail": both}))
		require.ErrorIs(t, o.Checkpoint(t.Context(), store.Checkpoint{Lease: lease, TTL: time.Hour, Position: page.End}), store.ErrLeaseLost)
		require.True(t, route(t, o, map[string]notification.TypeFilter{"mail": orders}))
	}
}

func routeAdded(t *testing.T, o *kit.Outbox) {
	routed(t, o, orders, notification.TypeFilter{})
	o.Publish(t, append(keyed("order.placed", "k"), keyed("mail.sent", "k", "")...)...)
	o.Pass(t, "mail")
	o.Publish(t, keyed("mail.sent", "k")...)
	require.True(t, route(t, o, map[string]notification.TypeFilter{"mail": both}))
	require.Empty(t, unroutedNow(t, o))
	require.Equal(t, []int64{2, 3}, find(t, o, store.ParkedFilter{Sink: "mail"}), "the sink reads the last row itself")
	require.True(t, route(t, o, map[string]notification.TypeFilter{"mail": both}))
}

func routeRemoved(t *testing.T, o *kit.Outbox) {
	routed(t, o, both, notification.TypeFilter{})
	o.Publish(t, keyed("mail.sent", "k")...)
	o.Pass(t, "mail", store.SinkUnrouted)
	o.Publish(t, append(keyed("mail.sent", "k"), keyed("order.placed", "k")...)...)
	o.Pass(t, store.SinkUnrouted)
	o.Publish(t, keyed("mail.sent", "k")...)
	require.True(t, route(t, o, map[string]notification.TypeFilter{"mail": orders}))
	require.Equal(t, []int64{2}, unroutedNow(t, o), "the first is delivered, and _unrouted reads the last itself")
	require.True(t, route(t, o, map[string]notification.TypeFilter{"mail": both}))
	require.Empty(t, unroutedNow(t, o), "the sink reads it again")
}

func routeTaken(t *testing.T, o *kit.Outbox) {
	routed(t, o, both, notification.TypeFilter{})
	o.Publish(t, keyed("mail.sent", "k")...)
	o.Pass(t, "web", store.SinkUnrouted) // web skips it
	require.True(t, route(t, o, map[string]notification.TypeFilter{"web": mails}))
	o.Publish(t, keyed("mail.sent", "k")...)
	o.Pass(t, "web", store.SinkUnrouted) // web has it
	require.True(t, route(t, o, map[string]notification.TypeFilter{"mail": orders}))
	require.Equal(t, []int64{1}, find(t, o, store.ParkedFilter{Sink: "web"}), "web is the only one left for it")
	require.True(t, route(t, o, map[string]notification.TypeFilter{"web": {}}))
	require.Empty(t, unroutedNow(t, o), "what it had is not unrouted")
}

func routeMoves(t *testing.T, o *kit.Outbox) {
	routed(t, o, orders, notification.TypeFilter{})
	hasNoRoute(t, o, func(p *store.Parked) {
		switch p.Envelope.Offset {
		case 2:
			p.State, p.Attempt, p.DueAt = store.StateScheduled, 0, soon()
		case 3, 4, 6:
			p.FirstParkedAt = time.Now().Add(-50 * time.Minute)
		}
	}, keyed("mail.sent", "a", "b", "c", "c", "d", "d")...)
	require.NoError(t, o.Release(t.Context(), o.Hold(t, "mail")))
	require.NoError(t, o.Release(t.Context(), o.Hold(t, store.SinkUnrouted)))
	require.True(t, route(t, o, map[string]notification.TypeFilter{"mail": both}))
	require.Equal(t, []int64{1, 5, 6}, unroutedNow(t, o), "the sink passed them long ago: a person reroutes them, and what follows them")
	require.Equal(t, []int64{2}, find(t, o, store.ParkedFilter{Sink: "mail", States: []store.State{store.StateScheduled}}))
	require.Equal(t, []int64{3}, find(t, o, store.ParkedFilter{Sink: "mail", States: []store.State{store.StateRetrying}}), "it has waited for less than an hour")
	require.Equal(t, []int64{4}, find(t, o, store.ParkedFilter{Sink: "mail", States: []store.State{store.StateBlocked}}))

	require.True(t, route(t, o, map[string]notification.TypeFilter{"web": mails}))
	require.Empty(t, unroutedNow(t, o), "web reads it itself")
	require.Equal(t, []int64{1, 2, 3, 4, 5, 6}, find(t, o, store.ParkedFilter{Sink: "mail"}))
}

func routeOfMany(t *testing.T, o *kit.Outbox) {
	const n = 5_001
	routed(t, o, orders, notification.TypeFilter{})
	rows := make([]notification.Envelope, n)
	for i := range rows {
		rows[i] = kit.Envelope("mail.sent", "")
		rows[i].DeliverAt = kit.Later()
	}
	o.Publish(t, rows...)
	o.Pass(t, "mail")
	require.True(t, route(t, o, map[string]notification.TypeFilter{"mail": both}))
	counts, _, err := o.CountParked(t.Context(), store.ParkedFilter{})
	require.NoError(t, err)
	require.Len(t, counts, 1)
	require.Equal(t, "mail", counts[0].Sink)
	require.EqualValues(t, n, counts[0].Count)
}

func routeAll(t *testing.T, o *kit.Outbox) {
	routed(t, o, orders, notification.TypeFilter{})
	o.Publish(t, keyed("mail.sent", "k")...)
	o.Pass(t, "mail")
	require.True(t, route(t, o, map[string]notification.TypeFilter{"mail": notification.AllTypes}))
	require.Equal(t, []int64{1}, find(t, o, store.ParkedFilter{Sink: "mail"}))
	for _, c := range o.Report(t).Cursors {
		require.NotEqual(t, store.SinkUnrouted, c.Sink)
	}

	o.Publish(t, keyed("mail.sent", "k")...)
	require.True(t, route(t, o, map[string]notification.TypeFilter{"mail": orders}))
	require.Equal(t, []int64{2}, unroutedNow(t, o), "the sink had not read it")
}

func routeAllButReserved(t *testing.T, o *kit.Outbox) {
	everything := notification.TypeFilter{Prefixes: []string{notification.ReservedPrefix}, Except: true}
	own := notification.TypeFilter{Names: []string{"_own"}}
	routed(t, o, everything, own)
	require.Equal(t, &notification.TypeFilter{}, o.Members(t).Lanes[0].Types, "of _unrouted")
	o.Publish(t, slices.Concat(keyed("_own", "k"), keyed("mail.sent", "k"))...)
	o.Pass(t, "mail")
	require.True(t, route(t, o, map[string]notification.TypeFilter{"web": {}}))
	require.Equal(t, []int64{1}, unroutedNow(t, o), "the sink had not read it")
	o.Publish(t, keyed("_own", "k")...)
	require.True(t, route(t, o, map[string]notification.TypeFilter{"mail": orders}))
	require.Equal(t, []int64{1}, unroutedNow(t, o), "no sink took it")
}

func routeForgotten(t *testing.T, o *kit.Outbox) {
	routed(t, o, orders, mails)
	o.Publish(t, keyed("mail.sent", "k")...)
	o.Pass(t, store.SinkUnrouted)
	o.ForgetSink(t, "web")
	o.Publish(t, keyed("mail.sent", "k")...)
	o.Pass(t, store.SinkUnrouted) // it skips what web took
	o.Publish(t, keyed("mail.sent", "k")...)
	require.True(t, route(t, o, nil))
	require.Equal(t, []int64{2}, unroutedNow(t, o), "the first is deleted with the sink, and _unrouted reads the last")
	require.Equal(t, &notification.TypeFilter{Names: []string{"order.placed"}, Except: true}, o.Hold(t, store.SinkUnrouted).Types)
}

func routeUnknown(t *testing.T, o *kit.Outbox) {
	for _, sink := range []string{"mail", "web", store.SinkUnrouted} {
		require.NoError(t, o.Cut(t.Context(), sink, 1))
	}
	require.True(t, route(t, o, map[string]notification.TypeFilter{"mail": orders}))
	require.False(t, route(t, o, map[string]notification.TypeFilter{store.SinkUnrouted: {}}), "web may take anything")
	lease := o.Hold(t, store.SinkUnrouted)
	require.Nil(t, lease.Types, "web may take anything")
	require.NoError(t, o.Release(t.Context(), lease))
	o.Publish(t, keyed("mail.sent", "k")...)
	require.True(t, route(t, o, map[string]notification.TypeFilter{"web": mails}))
	lease = o.Hold(t, store.SinkUnrouted)
	require.Equal(t, &notification.TypeFilter{Names: []string{"order.placed"}, Prefixes: []string{"mail."}, Except: true}, lease.Types)
	require.NoError(t, o.Release(t.Context(), lease))
	require.Empty(t, unroutedNow(t, o))

	require.True(t, route(t, o, map[string]notification.TypeFilter{store.SinkUnrouted: {}}), "asked by another forwarder meanwhile")
	for _, l := range o.Members(t).Lanes {
		require.Nil(t, l.WantedTypes, l.Lane.Sink)
	}
}
