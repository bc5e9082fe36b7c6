package admin_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/notification"
)

func TestThePauseOfASinkRecordsItsReason(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.publish(t, "a", "order.placed", "")
		o.settle(t, "mail", nothing)
		_, err := o.For(admin.Request{Reason: "OPS-7"}).Pause(t.Context(), "mail")
		require.NoError(t, err)
		_, err = o.Resume(t.Context(), "mail")
		require.NoError(t, err)
		actions, err := o.Actions(t.Context(), 2)
		require.NoError(t, err)
		var reasons []string
		for _, a := range actions {
			var f admin.PauseFilter
			require.NoError(t, json.Unmarshal(a.Filter, &f))
			require.Equal(t, []string{"mail"}, f.Sinks)
			reasons = append(reasons, a.Reason)
		}
		require.ElementsMatch(t, []string{"", "OPS-7"}, reasons)
	})
}

func TestAReplayIsPinnedToAnEarlierPlan(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		o.publish(t, "a", "order.placed", "")
		o.settle(t, "mail", nothing)
		request := admin.ReplayRequest{Sink: "mail", Routed: notification.AllTypes}
		plan, err := o.Replay(t.Context(), request)
		require.NoError(t, err)
		o.publish(t, "b", "order.placed", "")
		o.settle(t, "mail", nothing)
		for upTo, want := range map[int64]int64{0: 2, plan.UpTo: 1, plan.UpTo + 1_000_000: 2} {
			request.UpTo = upTo
			again, err := o.Replay(t.Context(), request)
			require.NoError(t, err)
			require.Equal(t, want, again.Total(), upTo)
		}
		require.True(t, plan.Takes("order.placed"))
	})
}
