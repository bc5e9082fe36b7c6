package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
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

func TestStatusSaysSinceWhenByWhomAndWhyASinkIsPaused(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		for _, sink := range []string{"mail", "web"} {
			o.settle(t, sink, nothing)
		}
		pause := func(who, reason string, sinks ...string) {
			_, err := admin.New(o.store, who).For(admin.Request{Reason: reason}).Pause(t.Context(), sinks...)
			require.NoError(t, err)
		}
		paused := func() (found []admin.Trouble) {
			status, err := o.Status(t.Context(), nil)
			require.NoError(t, err)
			for _, trouble := range status.Troubles {
				if trouble.What == admin.Paused {
					found = append(found, trouble)
				}
			}
			return found
		}
		pause("eve", "old", "mail")
		_, err := o.Resume(t.Context(), "mail")
		require.NoError(t, err)
		require.Empty(t, paused())
		pause("ada", "OPS-7", "mail")
		pause("bob", "OPS-8", "mail")        // changes nothing
		pause("bob", "OPS-9", "mail", "web") // pauses only one of them
		found := paused()
		require.Len(t, found, 2)
		require.Regexp(t, `^the sink is paused since \S+ \S+Z by ada: OPS-7$`, found[0].Text)
		require.Equal(t, "ada", found[0].By)
		require.Equal(t, "OPS-7", found[0].Cause)
		require.WithinDuration(t, time.Now(), found[0].Since, time.Minute)
		require.Equal(t, "OPS-9", found[1].Cause)
		for range 60 {
			require.NoError(t, o.Record(t.Context(), "other", nil, func() error { return nil }))
		}
		require.Equal(t, found, paused(), "other actions do not hide it")
	})
}

func TestAnUnknownSinkIsNotPaused(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		_, err := o.Pause(t.Context(), "mail")
		require.ErrorIs(t, err, store.ErrUnknownSink)
		require.EqualError(t, err, `pause: unknown sink "mail": the outbox knows none yet`)
		o.settle(t, "events", nothing)
		_, err = o.Pause(t.Context(), "mail")
		require.EqualError(t, err, `pause: unknown sink "mail": the outbox knows events`)
	})
}

func TestAReplayStopsAtTheCountOfItsPlan(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		request := admin.ReplayRequest{Sink: "mail", Routed: notification.AllTypes}
		for i := range 500 { // more rows than in a batch
			o.publish(t, fmt.Sprint("n", i), "order.placed", "")
		}
		o.settle(t, "mail", nothing)
		o.publish(t, "late", "order.placed", "")
		plan, err := o.Replay(t.Context(), request)
		require.NoError(t, err)
		require.EqualValues(t, 500, plan.Total())
		require.EqualValues(t, 1, plan.Count.Unsettled)
		o.settle(t, "mail", nothing) // including the row published after the plan
		action, err := plan.Run(t.Context(), nil)
		require.NoError(t, err)
		require.EqualValues(t, 500, action.Count)
		require.Equal(t, store.ActionDone, action.State)
		counts, err := o.Count(t.Context(), admin.Filter{ID: "late"})
		require.NoError(t, err)
		require.Empty(t, counts)
	})
}

func TestAContinuedReplayStopsAtTheEndOfTheFirstPlan(t *testing.T) {
	onEach(t, func(t *testing.T, o *outbox) {
		for i := range 3 {
			o.publish(t, fmt.Sprint("n", i), "order.placed", "")
		}
		o.settle(t, "mail", nothing)
		o.publish(t, "late", "order.placed", "")
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		plan, err := o.Replay(ctx, admin.ReplayRequest{Sink: "mail", Routed: notification.AllTypes, Rate: 10}) // one row in a batch
		require.NoError(t, err)
		action, err := plan.Run(ctx, func(a store.Action) {
			if a.Count == 1 {
				interrupt()
			}
		})
		require.ErrorIs(t, err, context.Canceled)
		o.settle(t, "mail", nothing) // including the row published after the plan
		rest, err := o.ContinueReplay(t.Context(), action.ID)
		require.NoError(t, err)
		require.EqualValues(t, 2, rest.Total())
		action, err = rest.Run(t.Context(), nil)
		require.NoError(t, err)
		require.EqualValues(t, 3, action.Count)
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
