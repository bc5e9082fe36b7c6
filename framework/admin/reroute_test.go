package admin_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

// withoutRoute publishes rows of a type and parks them without a route.
func (o *outbox) withoutRoute(t *testing.T, typ string, first, count int) {
	t.Helper()
	parked := make([]store.Parked, count)
	for i := range parked {
		id := fmt.Sprintf("n%d", first+i)
		o.publish(t, id, typ, "k")
		parked[i] = delivery(int64(first+i), id, "k", store.StateDead)
		parked[i].Envelope.Type = typ
	}
	o.park(t, store.SinkUnrouted, parked...)
}

func TestRoutesThatAreAddedLaterDeliverUnroutedNotifications(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.withoutRoute(t, "order.placed", 1, 3)
		o.withoutRoute(t, "parcel.lost", 4, 1)
		o.settle(t, "mail", nothing)
		o.settle(t, "web", nothing)
		plan, err := o.Reroute(t.Context(), admin.Filter{}, routing(t).Routes)
		require.NoError(t, err)
		require.Equal(t, []admin.RerouteCount{{
			RerouteCount: store.RerouteCount{Type: "order.placed", State: store.StateDead, Count: 3},
			Sinks:        []string{"mail", "web"},
		}}, plan.Types)
		require.EqualValues(t, 3, plan.Total())

		o.withoutRoute(t, "order.placed", 5, 1) // parked after the count
		action, err := plan.Run(t.Context(), nil)
		require.NoError(t, err)
		require.EqualValues(t, 3, action.Count, "at most the count")
		require.Equal(t, "reroute", action.Name)
		require.False(t, action.EndedAt.IsZero())
		require.Zero(t, plan.Left)
		counts, err := o.Count(t.Context(), admin.Filter{})
		require.NoError(t, err)
		require.Equal(t, []store.ParkedCount{
			{Sink: "_unrouted", State: store.StateDead, Count: 2},
			{Sink: "mail", State: store.StateBlocked, Count: 2},
			{Sink: "mail", State: store.StateRetrying, Count: 1},
			{Sink: "web", State: store.StateBlocked, Count: 2},
			{Sink: "web", State: store.StateRetrying, Count: 1},
		}, counts)
	})
}

func TestARerouteReportsWhatItLeavesAndRefusesInvalidFilters(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.withoutRoute(t, "order.placed", 1, 2)
		o.settle(t, "mail", nothing)
		plan, err := o.Reroute(t.Context(), admin.Filter{ID: "n2"}, routing(t).Routes)
		require.NoError(t, err)
		require.EqualValues(t, 1, plan.Total())
		_, err = plan.Run(t.Context(), nil)
		require.ErrorIs(t, err, store.ErrUnknownSink, "web has no cursor")
		require.ErrorContains(t, err, "start a forwarder with the routes first")

		_, err = o.store.Cut(t.Context(), "web", 1, store.StartOldest)
		require.NoError(t, err)
		action, err := plan.Run(t.Context(), nil)
		require.NoError(t, err)
		require.Zero(t, action.Count)
		require.EqualValues(t, 1, plan.Left)

		_, err = o.Reroute(t.Context(), admin.Filter{Sink: "mail"}, routing(t).Routes)
		require.ErrorIs(t, err, admin.ErrFilter)
		_, err = o.Reroute(t.Context(), admin.Filter{States: []store.State{store.StateBlocked}}, routing(t).Routes)
		require.ErrorIs(t, err, admin.ErrFilter)
	})
}
