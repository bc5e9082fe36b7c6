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

// A status is made of a sample, so both are looked at together.
var sampleFacts = []kit.Fact{
	{"an unused outbox has an empty status, and a sample with the named sinks at zero", emptySample},
	{"each sink has its pending rows, the age of the oldest, and the leases of its lanes", sampledCursors},
	{"only rows of a sink's types are pending for it", pendingTypes},
	{"lanes of a sink at different positions are counted together", sampledLanes},
	{"the mark of a sink with pending rows changes when its cursor moves, and not when its lease is renewed", sampledMark},
	{"parked deliveries are counted by sink and state, also overdue ones, the keys of dead ones and failed hooks", sampledParked},
	{"counting stops at the limit", sampleLimit},
	{"beyond the limit the pending rows of each lane and each type are estimated", sampleEstimate},
}

func sample(t *testing.T, o *kit.Outbox, types map[string]notification.TypeFilter) (store.Sample, map[string]store.SinkSample) {
	t.Helper()
	sample := o.Counted(t, types)
	sinks := make(map[string]store.SinkSample)
	for _, s := range sample.Sinks {
		sinks[s.Sink] = s
	}
	return sample, sinks
}

func emptySample(t *testing.T, o *kit.Outbox) {
	sample, sinks := sample(t, o, map[string]notification.TypeFilter{"mail": notification.AllTypes})
	require.Len(t, sample.Sinks, 1)
	require.Len(t, sinks["mail"].Parked.States, 8)
	for _, p := range sinks["mail"].Parked.States {
		require.Zero(t, p.Count)
		require.True(t, p.Oldest.IsZero())
	}
	require.Zero(t, sample.Forwarders)
	require.Nil(t, sample.Oldest)
	require.Positive(t, sample.LogBytes)
	require.Zero(t, sample.Held)
	status := o.Report(t)
	require.Zero(t, status.LastOffset)
	require.Empty(t, status.Cursors)
	require.Empty(t, status.Parked)
}

func sampledCursors(t *testing.T, o *kit.Outbox) {
	rows := kit.Several(10)
	for i := range rows {
		rows[i].OccurredOn = time.Now().Add(-time.Hour + time.Duration(i)*time.Minute)
	}
	rows[9].Type = "order.shipped"
	o.Publish(t, rows...)
	page := o.Page(t, 10)
	events, mail := o.Hold(t, "events"), o.Hold(t, "mail")
	o.Write(t, events, func(c *store.Checkpoint) { c.Position = page.End })
	o.Write(t, mail, func(c *store.Checkpoint) {
		c.Position = page.After(1)
		c.Settled = store.OffsetRanges(page.Envelopes[5].Offset, page.Envelopes[7].Offset)
	})
	require.NoError(t, o.Release(t.Context(), events))
	o.Hold(t, "web")
	require.NoError(t, o.Heartbeat(t.Context(), store.Member{Owner: "w1", Sinks: []string{"web"}}, time.Hour))

	sample, sinks := sample(t, o, map[string]notification.TypeFilter{"web": {Names: []string{"order.shipped"}}})
	require.Equal(t, 1, sample.Forwarders)
	require.Equal(t, page.Envelopes[0].Offset, sample.Oldest.Offset)
	require.Len(t, sinks, 3)
	for _, c := range []struct {
		sink        string
		pending     int
		lag         time.Duration
		owned, free int
	}{
		{"events", 0, 0, 0, 1},
		{"mail", 6, 58 * time.Minute, 1, 0},
		{"web", 1, 51 * time.Minute, 1, 0},
	} {
		s := sinks[c.sink]
		require.Equal(t, c.pending, s.Pending, c.sink)
		require.InDelta(t, c.lag.Seconds(), s.Lag.Seconds(), 50, c.sink)
		require.Equal(t, []int{c.owned, c.free}, []int{s.Owned, s.Free}, c.sink)
		require.Len(t, s.Lanes, 1)
		require.Equal(t, []any{c.pending, s.Lag}, []any{s.Lanes[0].Pending, s.Lanes[0].Lag}, c.sink)
		require.False(t, s.Paused)
	}

	status := o.Report(t)
	require.Equal(t, page.Envelopes[9].Offset, status.LastOffset)
	require.Len(t, status.Cursors, 3)
	for i, want := range []store.CursorStatus{
		{Sink: "events", Pending: 0, Epoch: events.Epoch},
		{Sink: "mail", Pending: 6, Owner: "w1", Epoch: mail.Epoch},
		{Sink: "web", Pending: 10, Owner: "w1", Epoch: 1},
	} {
		got := status.Cursors[i]
		require.WithinDuration(t, time.Now(), got.UpdatedAt, time.Minute)
		if want.Owner == "" {
			require.True(t, got.LeaseUntil.IsZero())
		} else {
			require.WithinDuration(t, time.Now().Add(time.Hour), got.LeaseUntil, time.Minute)
		}
		want.AllTypes, want.UpdatedAt, want.LeaseUntil = true, got.UpdatedAt, got.LeaseUntil
		require.Equal(t, want, got)
	}
}

func sampledMark(t *testing.T, o *kit.Outbox) {
	page := pageOf(t, o, kit.Several(10)...)
	lease := o.Hold(t, "mail")
	mark := func() uint64 {
		_, sinks := sample(t, o, nil)
		return sinks["mail"].Mark
	}
	first := mark()
	o.Write(t, lease, func(*store.Checkpoint) {})
	o.Publish(t, kit.Several(1)...)
	require.Equal(t, first, mark(), "renewed")
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Position, c.Settled = page.After(1), store.OffsetRanges(page.Envelopes[5].Offset)
	})
	second := mark()
	require.NotEqual(t, first, second, "moved")
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Position, c.Settled = page.After(1), store.OffsetRanges(page.Envelopes[5].Offset, page.Envelopes[7].Offset)
	})
	require.NotEqual(t, second, mark(), "settled out of order")
}

func sampledLanes(t *testing.T, o *kit.Outbox) {
	page := pageOf(t, o, kit.Several(40)...)
	want := make([]int, 3) // pending rows by lane
	for i := range want {
		l := store.NewLane("mail", i, len(want))
		lease := o.HoldLane(t, l, "w1")
		if i < 2 {
			o.Write(t, lease, func(c *store.Checkpoint) { c.Position = page.After(10 * (i + 1)) })
		}
		for j, e := range page.Envelopes {
			if l.Slots.First <= e.Slot && e.Slot <= l.Slots.Last && (i == 2 || j > 10*(i+1)) {
				want[i]++
			}
		}
	}
	_, sinks := sample(t, o, nil)
	got := sinks["mail"]
	require.Equal(t, want[0]+want[1]+want[2], got.Pending)
	require.False(t, got.Estimated)
	require.Len(t, got.Lanes, len(want))
	for i, lane := range got.Lanes {
		require.Equal(t, []int{i, want[i]}, []int{lane.Lane, lane.Pending})
		require.Equal(t, lane.Pending > 0, lane.Lag > 0)
		require.False(t, lane.Estimated)
	}
}

func pendingTypes(t *testing.T, o *kit.Outbox) {
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

	found, _ := sample(t, o, map[string]notification.TypeFilter{
		"events":  {Prefixes: []string{"order."}},
		"mail":    {Names: []string{"customer.moved"}},
		"none":    {},
		"settles": {Names: []string{"order.placed"}},
	})
	got := make(map[string]int)
	for _, c := range found.Status(nil).Cursors {
		got[c.Sink] += c.Pending
		require.Equal(t, c.Sink == "other", c.AllTypes, c.Sink)
	}
	require.Equal(t, map[string]int{"events": 4, "mail": 1, "none": 0, "other": 6, "settles": 1}, got)
}

func sampleLimit(t *testing.T, o *kit.Outbox) {
	o.Park(t, kit.Scheduled(1_000_000, "", kit.Moment))
	o.Publish(t, kit.Several(1000)...)
	for rows := 1000; rows <= store.PendingLimit; rows *= 2 {
		o.Exec(t, `INSERT INTO outbox (id, type, occurred_on, payload) SELECT id, type, occurred_on, payload FROM outbox`)
	}
	o.Exec(t, `INSERT INTO outbox_parked (sink, {offset}, slot, id, type, version, {key}, occurred_on, metadata, payload, state, attempt, due_at)
		SELECT 'mail', {offset}, 0, id, type, version, {key}, occurred_on, metadata, payload, 'retrying', 1, occurred_on FROM outbox`)
	_, sinks := sample(t, o, nil)
	require.True(t, sinks["mail"].Estimated)
	require.Equal(t, store.ParkedLimit, sinks["mail"].Parked.Count(store.StateRetrying))
	require.Equal(t, store.ParkedLimit, sinks["mail"].Parked.Overdue)
	status := o.Report(t)
	require.Equal(t, []store.ParkedCount{
		{Sink: "mail", State: store.StateRetrying, Count: store.ParkedLimit},
		{Sink: "mail", State: store.StateScheduled, Count: 1},
	}, status.Parked)
}

// sampleEstimate compares estimates with a log that repeats the same thousand rows, and has a gap where a third was
// removed.
func sampleEstimate(t *testing.T, o *kit.Outbox) {
	const copies = 64
	rows := kit.Several(1000)
	for i := range rows {
		rows[i].Key = fmt.Sprint("k", i%100)
		if i%20 == 0 {
			rows[i].Type = "order.shipped"
		}
	}
	o.Publish(t, rows...)
	for n := 1; n < copies; n *= 2 {
		o.Exec(t, `INSERT INTO outbox (id, type, {key}, occurred_on, payload) SELECT id, type, {key}, occurred_on, payload FROM outbox`)
	}
	o.Exec(t, `DELETE FROM outbox WHERE {offset} > 30000 AND {offset} <= 51000`)
	sinks := map[string]notification.TypeFilter{"all": notification.AllTypes, "placed": {Names: []string{"order.placed"}}, "shipped": {Names: []string{"order.shipped"}}}
	first := o.Page(t, len(rows))
	page := first.Envelopes
	for sink := range sinks {
		leases := o.HoldLanes(t, sink, 4)
		if sink == "all" { // its lanes are at different places
			for i, lease := range leases[1:] {
				o.Write(t, lease, func(c *store.Checkpoint) { c.Position = first.After(20 * i) })
			}
		}
	}
	got, _ := sample(t, o, sinks)
	for _, s := range got.Sinks {
		all, matching := 0, 0
		for _, e := range page {
			if sinks[s.Sink].Matches(e.Type) {
				matching++
			}
		}
		require.NoError(t, o.DB.QueryRowContext(t.Context(), `SELECT count(*) FROM outbox WHERE '`+s.Sink+`' IN ('all', substr(type, 7))`).Scan(&all))
		for _, lane := range s.Lanes {
			share := 0
			for _, e := range page {
				if slots := store.NewLane("", lane.Lane, 4).Slots; sinks[s.Sink].Matches(e.Type) && slots.First <= e.Slot && e.Slot <= slots.Last {
					share++
				}
			}
			right := float64(all) * float64(share) / float64(matching)
			require.InDelta(t, right, lane.Pending, right/2, "%s/%d", s.Sink, lane.Lane)
			require.Equal(t, share > 0, lane.Lag > 0, "%s/%d", s.Sink, lane.Lane)
		}
		require.Equal(t, all > store.PendingLimit, s.Estimated, s.Sink)
		require.InDelta(t, all, s.Pending, float64(all)/2, s.Sink)
		if !s.Estimated {
			require.Equal(t, all, s.Pending, s.Sink)
		}
		t.Logf("%s: %d pending, %d found", s.Sink, all, s.Pending)
	}
}

// sampledParked compares what a sample, a status and the doctor count.
func sampledParked(t *testing.T, o *kit.Outbox) {
	failed, settling := kit.Retrying(2, "", time.Now().Add(-2*time.Hour)), kit.Parked(9, "", store.StateSettling, kit.Later())
	failed.HookError, failed.HookFailures, settling.HookError, settling.HookFailures = "no such table", 2, "deadlock", 1
	dead := kit.Dead(6, "")
	dead.FirstParkedAt, dead.LastError, failed.LastError = time.Now(), "422 no such address", "503"
	failed.FirstParkedAt = dead.FirstParkedAt
	o.Park(t, kit.Retrying(1, "k", time.Now().Add(-time.Hour)), failed, kit.Blocked(3, "k"), kit.Dead(4, "a"), kit.Dead(5, "a"), dead,
		kit.Scheduled(7, "", kit.Later()), kit.Scheduled(8, "", kit.Later()), settling,
		kit.Parked(10, "", store.StateQuiet, kit.Later()), kit.Parked(11, "", store.StateCollecting, time.Time{}))
	o.Exec(t, `INSERT INTO outbox_cancelled ({offset}, id) SELECT {offset}, id FROM outbox_parked WHERE {offset} = 8`)
	o.ParkFor(t, "events", kit.Dead(4, ""))
	all, err := o.ParkedFigures(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 2)
	f := all[1]
	_, sinks := sample(t, o, nil)
	require.Equal(t, f.States, sinks["mail"].Parked.States)

	counts := make(map[store.State]int)
	for _, s := range f.States {
		counts[s.State] = s.Count
		require.Equal(t, s.State == store.StateCancelled, s.Oldest.IsZero(), s.State)
	}
	require.Equal(t, map[store.State]int{store.StateRetrying: 2, store.StateBlocked: 1, store.StateDead: 3, store.StateScheduled: 1, store.StateCancelled: 1, store.StateSettling: 1, store.StateQuiet: 1, store.StateCollecting: 1}, counts)
	require.InDelta(t, 2*time.Hour, f.LongestDue, float64(time.Minute))
	require.Equal(t, []int{2, 1, 2}, []int{f.Overdue, f.DeadKeys, f.Hooks})
	require.Equal(t, "no such table", f.HookError)
	require.Equal(t, []string{"422 no such address", "503", ""},
		[]string{f.In(store.StateDead).LastError, f.In(store.StateRetrying).LastError, f.In(store.StateBlocked).LastError})
	require.Equal(t, []string{dead.Envelope.Type, ""}, []string{f.In(store.StateDead).LastType, f.In(store.StateBlocked).LastType})
	status := o.Report(t)
	require.Equal(t, []store.ParkedCount{
		{Sink: "events", State: store.StateDead, Count: 1},
		{Sink: "mail", State: store.StateBlocked, Count: 1}, {Sink: "mail", State: store.StateCancelled, Count: 1},
		{Sink: "mail", State: store.StateCollecting, Count: 1}, {Sink: "mail", State: store.StateDead, Count: 3}, {Sink: "mail", State: store.StateQuiet, Count: 1},
		{Sink: "mail", State: store.StateRetrying, Count: 2, HookError: "no such table"}, {Sink: "mail", State: store.StateScheduled, Count: 1},
		{Sink: "mail", State: store.StateSettling, Count: 1, HookError: "deadlock"},
	}, status.Parked)
	require.Equal(t, status.Parked, store.ParkedCounts(all))
}
