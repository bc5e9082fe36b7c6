package admin_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/store"
)

// parkMany parks more dead deliveries than fit into a batch.
func (o *outbox) parkMany(t *testing.T, n int) {
	t.Helper()
	parked := make([]store.Parked, n)
	for i := range parked {
		parked[i] = delivery(int64(i+1), fmt.Sprintf("n%d", i+1), "", store.StateDead)
	}
	o.park(t, "mail", parked...)
}

func TestACancelledActionStopsInAnyProcess(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.parkMany(t, 1200)
		plan, err := o.Discard(t.Context(), admin.Filter{})
		require.NoError(t, err)
		other := admin.New(o.store, "eve")
		action, err := plan.Run(t.Context(), func(a store.Action) {
			if a.Count == 500 {
				_, err := other.Cancel(t.Context(), a.ID)
				require.NoError(t, err)
			}
		})
		require.ErrorIs(t, err, store.ErrActionCancelled)
		require.EqualValues(t, 500, action.Count)
		require.EqualValues(t, 1200, action.Planned)
		require.Equal(t, store.ActionCancelled, action.State)
		require.Equal(t, "eve", action.CancelledBy)
		require.False(t, action.EndedAt.IsZero())
		left, err := o.Discard(t.Context(), admin.Filter{})
		require.NoError(t, err)
		require.EqualValues(t, 700, left.Total())
	})
}

func TestACancelledReplayIsNotContinued(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		for i := range 3 {
			o.publish(t, fmt.Sprintf("n%d", i), "order.placed", "k")
		}
		o.settle(t, "mail", nothing)
		plan, err := o.Replay(t.Context(), admin.ReplayRequest{Sink: "mail", Routed: routing(t).Routes.Filter("mail")})
		require.NoError(t, err)
		action, err := plan.Run(t.Context(), func(a store.Action) {
			if a.Count == 0 {
				_, err := o.Cancel(t.Context(), a.ID)
				require.NoError(t, err)
			}
		})
		require.ErrorIs(t, err, store.ErrActionCancelled)
		_, err = o.ContinueReplay(t.Context(), action.ID)
		require.ErrorIs(t, err, store.ErrActionCancelled)
	})
}

func TestARepeatedPlanExpectsTheCountOfTheFirst(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.withoutRoute(t, "order.placed", 1, 2)
		o.settle(t, "mail", nothing)
		o.settle(t, "web", nothing)
		first, err := o.Reroute(t.Context(), admin.Filter{}, routing(t).Routes)
		require.NoError(t, err)
		replay, err := o.Replay(t.Context(), admin.ReplayRequest{Sink: "mail", Routed: routing(t).Routes.Filter("mail")})
		require.NoError(t, err)
		dead, err := o.Discard(t.Context(), admin.Filter{})
		require.NoError(t, err)

		o.withoutRoute(t, "order.placed", 3, 1)
		o.settle(t, "mail", nothing)
		again, err := o.Reroute(t.Context(), admin.Filter{}, routing(t).Routes)
		require.NoError(t, err)
		require.ErrorIs(t, again.Expect(first.Total()), admin.ErrMore)
		again, err = o.Reroute(t.Context(), admin.Filter{PlannedAt: first.PlannedAt()}, routing(t).Routes)
		require.NoError(t, err)
		require.NoError(t, again.Expect(first.Total()))

		more, err := o.Replay(t.Context(), admin.ReplayRequest{Sink: "mail", Routed: routing(t).Routes.Filter("mail")})
		require.NoError(t, err)
		require.ErrorIs(t, more.Expect(replay.Total()), admin.ErrMore)
		more, err = o.Replay(t.Context(), replay.ReplayRequest)
		require.NoError(t, err)
		require.NoError(t, more.Expect(replay.Total()))

		newer, err := o.Discard(t.Context(), admin.Filter{})
		require.NoError(t, err)
		require.ErrorIs(t, newer.Expect(dead.Total()), admin.ErrMore)
		newer, err = o.Discard(t.Context(), admin.Filter{PlannedAt: dead.PlannedAt()})
		require.NoError(t, err)
		require.NoError(t, newer.Expect(dead.Total()))
	})
}

func TestARequestWithAKeyBeginsOneAction(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.parkMany(t, 2)
		request := admin.Request{Address: "10.0.0.7", Reason: "gone", Key: "k", Digest: "d"}
		a := o.For(request)
		_, found, err := a.Begun(t.Context())
		require.NoError(t, err)
		require.False(t, found)
		one, err := a.Discard(t.Context(), admin.Filter{ID: "n1"})
		require.NoError(t, err)
		action, err := one.Run(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, "10.0.0.7", action.Address)
		require.Equal(t, "gone", action.Reason)

		two, err := a.Discard(t.Context(), admin.Filter{ID: "n2"})
		require.NoError(t, err)
		_, err = two.Run(t.Context(), nil)
		require.ErrorIs(t, err, store.ErrActionBegun)
		got, found, err := admin.New(o.store, "ada").For(request).Begun(t.Context())
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, action, got)
		request.Digest = "other"
		_, _, err = o.For(request).Begun(t.Context())
		require.ErrorIs(t, err, admin.ErrKeyUsed)
		_, found, err = admin.New(o.store, "eve").For(request).Begun(t.Context())
		require.NoError(t, err)
		require.False(t, found, "the request belongs to another person")
	})
}
