package deliveries

import (
	"fmt"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

var statusFacts = []fact{
	{"an unused outbox has an empty status", emptyStatus},
	{"the status counts the pending rows of each cursor", cursorStatus},
	{"only rows of a sink's types are pending for it", pendingTypes},
	{"parked deliveries are counted by sink and state", parkedStatus},
	{"the error of a hook is shown at its sink and state", hookStatus},
	{"counting stops at the limit", pendingLimit},
	{"counting parked deliveries stops at the limit", parkedLimit},
}

func emptyStatus(t *testing.T, o *outbox) {
	status := o.Report(t)
	require.Zero(t, status.LastOffset)
	require.Empty(t, status.Cursors)
	require.Empty(t, status.Parked)
}

func cursorStatus(t *testing.T, o *outbox) {
	page := o.pageOf(t, 10)
	events, mail := o.Hold(t, "events"), o.Hold(t, "mail")
	o.Write(t, events, func(c *store.Checkpoint) { c.Position = page.End })
	o.Write(t, mail, func(c *store.Checkpoint) {
		c.Position = page.After(1)
		c.Settled = store.OffsetRanges(page.Envelopes[5].Offset, page.Envelopes[7].Offset)
	})
	require.NoError(t, o.Release(t.Context(), events))
	o.Hold(t, "web")

	status := o.Report(t)
	require.Equal(t, page.Envelopes[9].Offset, status.LastOffset)
	require.Len(t, status.Cursors, 3)
	for i, want := range []store.CursorStatus{
		{Sink: "events", Pending: 0, Owner: "", Epoch: events.Epoch},
		{Sink: "mail", Pending: 6, Owner: "w1", Epoch: mail.Epoch},
		{Sink: "web", Pending: 10, Owner: "w1", Epoch: 1},
	} {
		got := status.Cursors[i]
		require.Equal(t, want.Sink, got.Sink)
		require.Equal(t, want.Lane, got.Lane)
		require.Equal(t, want.Pending, got.Pending, want.Sink)
		require.Equal(t, want.Owner, got.Owner, want.Sink)
		require.Equal(t, want.Epoch, got.Epoch, want.Sink)
		require.WithinDuration(t, time.Now(), got.UpdatedAt, time.Minute)
		if want.Owner == "" {
			require.True(t, got.LeaseUntil.IsZero())
		} else {
			require.WithinDuration(t, time.Now().Add(time.Hour), got.LeaseUntil, time.Minute)
		}
	}
}

func pendingTypes(t *testing.T, o *outbox) {
	rows := kit.Several(6)
	for i, typ := range []string{"order.placed", "order.shipped", "customer.moved", "order.placed", "stock.counted", "order.placed"} {
		rows[i].Type = typ
	}
	o.Publish(t, rows...)
	page := o.Page(t, 10)
	for _, sink := range []string{"events", "mail", "none", "other"} {
		o.Hold(t, sink)
	}
	settles := o.Hold(t, "settles")
	o.Write(t, settles, func(c *store.Checkpoint) {
		c.Position, c.Settled = page.After(0), store.OffsetRanges(page.Envelopes[3].Offset)
	})

	status, err := o.Status(t.Context(), store.StatusQuery{Types: map[string]notification.TypeFilter{
		"events":  {Prefixes: []string{"order."}},
		"mail":    {Names: []string{"customer.moved"}},
		"none":    {},
		"settles": {Names: []string{"order.placed"}},
	}})
	require.NoError(t, err)
	got := make(map[string]int)
	for _, c := range status.Cursors {
		got[c.Sink] += c.Pending
		require.Equal(t, c.Sink == "other", c.AllTypes, c.Sink)
	}
	require.Equal(t, map[string]int{"events": 4, "mail": 1, "none": 0, "other": 6, "settles": 1}, got)
}

func parkedStatus(t *testing.T, o *outbox) {
	o.Park(t, kit.Retrying(1, "k", kit.Moment), kit.Blocked(2, "k"), kit.Blocked(3, "k"), kit.Dead(4, ""), kit.Scheduled(5, "", kit.Moment))
	lease := o.Hold(t, "events")
	o.Write(t, lease, func(c *store.Checkpoint) { c.Park = []store.Parked{kit.Dead(4, "")} })
	require.ElementsMatch(t, []store.ParkedCount{
		{Sink: "events", State: store.StateDead, Count: 1},
		{Sink: "mail", State: store.StateBlocked, Count: 2},
		{Sink: "mail", State: store.StateDead, Count: 1},
		{Sink: "mail", State: store.StateRetrying, Count: 1},
		{Sink: "mail", State: store.StateScheduled, Count: 1},
	}, o.Report(t).Parked)
}

func hookStatus(t *testing.T, o *outbox) {
	delivered, d := kit.Parked(1, "", store.StateSettling, kit.Moment), kit.Dead(2, "")
	delivered.HookError, delivered.HookFailures, d.HookError, d.HookFailures = "deadlock", 1, "no such table", 2
	o.Park(t, delivered, d, kit.Dead(3, ""))
	require.Equal(t, []store.ParkedCount{
		{Sink: "mail", State: store.StateDead, Count: 2, HookError: "no such table"},
		{Sink: "mail", State: store.StateSettling, Count: 1, HookError: "deadlock"},
	}, o.Report(t).Parked)
}

func parkedLimit(t *testing.T, o *outbox) {
	o.Park(t, kit.Dead(1, ""), kit.Scheduled(1_000_000, "", kit.Moment))
	for rows := 1; rows <= store.PendingLimit; rows *= 2 {
		o.Exec(t, fmt.Sprintf(`INSERT INTO outbox_parked (sink, {offset}, slot, id, type, version, {key}, occurred_on, metadata, payload, state, attempt)
			SELECT sink, {offset} + %d, slot, id, type, version, {key}, occurred_on, metadata, payload, state, attempt FROM outbox_parked WHERE state = 'dead'`, rows))
	}
	require.Equal(t, []store.ParkedCount{
		{Sink: "mail", State: store.StateDead, Count: store.PendingLimit},
		{Sink: "mail", State: store.StateScheduled, Count: 1},
	}, o.Report(t).Parked)
}

func pendingLimit(t *testing.T, o *outbox) {
	o.Hold(t, "mail")
	o.Publish(t, kit.Several(1000)...)
	for rows := 1000; rows <= store.PendingLimit; rows *= 2 {
		o.Exec(t, `INSERT INTO outbox (id, type, occurred_on, payload) SELECT id, type, occurred_on, payload FROM outbox`)
	}
	require.Equal(t, store.PendingLimit, o.Report(t).Cursors[0].Pending)
}
