package deliveries

import (
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

var sampleFacts = []fact{
	{"a sample of an unused outbox has the named sinks at zero", emptySample},
	{"a sample has the pending rows of each sink, and the age of the oldest", sampledCursors},
	{"a sample has parked deliveries by state, overdue ones and the keys of dead ones", sampledParked},
	{"lanes of a sink at different positions are counted together", sampledLanes},
	{"the counts of a sample stop at the limit", sampleLimit},
	{"a sample, a status and the doctor count parked deliveries alike", parkedFigures},
}

func (o *outbox) sample(t *testing.T, types map[string]notification.TypeFilter) (store.Sample, map[string]store.SinkSample) {
	t.Helper()
	sample, err := o.Sample(t.Context(), store.SampleQuery{Types: types})
	require.NoError(t, err)
	sinks := make(map[string]store.SinkSample)
	for _, s := range sample.Sinks {
		sinks[s.Sink] = s
	}
	return sample, sinks
}

func emptySample(t *testing.T, o *outbox) {
	sample, sinks := o.sample(t, map[string]notification.TypeFilter{"mail": notification.AllTypes})
	require.Len(t, sample.Sinks, 1)
	require.Len(t, sinks["mail"].Parked.States, 6)
	for _, p := range sinks["mail"].Parked.States {
		require.Zero(t, p.Count)
		require.True(t, p.Oldest.IsZero())
	}
	require.Zero(t, sample.Forwarders)
	require.Nil(t, sample.Oldest)
	require.Positive(t, sample.LogBytes)
	require.Zero(t, sample.Held)
}

func sampledCursors(t *testing.T, o *outbox) {
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

	sample, sinks := o.sample(t, map[string]notification.TypeFilter{"web": {Names: []string{"order.shipped"}}})
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
}

func sampledLanes(t *testing.T, o *outbox) {
	page := o.pageOf(t, 40)
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
	_, sinks := o.sample(t, nil)
	got := sinks["mail"]
	require.Equal(t, want[0]+want[1]+want[2], got.Pending)
	require.False(t, got.Uncounted)
	require.Len(t, got.Lanes, len(want))
	for i, lane := range got.Lanes {
		require.Equal(t, []int{i, want[i]}, []int{lane.Lane, lane.Pending})
		require.Equal(t, lane.Pending > 0, lane.Lag > 0)
		require.False(t, lane.Uncounted)
	}
}

func sampledParked(t *testing.T, o *outbox) {
	o.Park(t, kit.Retrying(1, "k", time.Now().Add(-time.Hour)), kit.Blocked(2, "k"), kit.Dead(3, "a"), kit.Dead(4, "a"), kit.Dead(5, "b"), kit.Dead(6, ""),
		kit.Scheduled(7, "", time.Now().Add(time.Hour)))
	_, sinks := o.sample(t, nil)
	counts := make(map[store.State]int)
	for _, p := range sinks["mail"].Parked.States {
		counts[p.State] = p.Count
		require.Equal(t, p.Count == 0, p.Oldest.IsZero(), p.State)
	}
	require.Equal(t, map[store.State]int{store.StateRetrying: 1, store.StateBlocked: 1, store.StateDead: 4, store.StateScheduled: 1, store.StateSettling: 0, store.StateCancelled: 0}, counts)
	require.Equal(t, 1, sinks["mail"].Parked.Overdue)
	require.Equal(t, 2, sinks["mail"].Parked.DeadKeys)
}

func sampleLimit(t *testing.T, o *outbox) {
	o.Hold(t, "mail")
	o.Publish(t, kit.Several(1000)...)
	for rows := 1000; rows <= store.PendingLimit; rows *= 2 {
		o.Exec(t, `INSERT INTO outbox (id, type, occurred_on, payload) SELECT id, type, occurred_on, payload FROM outbox`)
	}
	o.Exec(t, `INSERT INTO outbox_parked (sink, {offset}, slot, id, type, version, {key}, occurred_on, metadata, payload, state, attempt, due_at)
		SELECT 'mail', {offset}, slot, id, type, version, {key}, occurred_on, metadata, payload, 'retrying', 1, occurred_on FROM outbox`)
	_, sinks := o.sample(t, nil)
	require.Equal(t, store.PendingLimit, sinks["mail"].Pending)
	require.True(t, sinks["mail"].Uncounted)
	require.Equal(t, store.ParkedLimit, sinks["mail"].Parked.Count(store.StateRetrying))
	require.Equal(t, store.ParkedLimit, sinks["mail"].Parked.Overdue)
}

// Status, Sample and the doctor must count parked deliveries in the same way.
func parkedFigures(t *testing.T, o *outbox) {
	o.Park(t, kit.Retrying(1, "k", time.Now().Add(-time.Hour)), kit.Retrying(2, "", time.Now().Add(-2*time.Hour)), kit.Blocked(3, "k"),
		kit.Dead(4, "a"), kit.Dead(5, "a"), kit.Dead(6, ""), kit.Scheduled(7, "", time.Now().Add(time.Hour)), kit.Scheduled(8, "", time.Now().Add(time.Hour)))
	o.Exec(t, `UPDATE outbox_parked SET hook_failures = 2, hook_error = 'no such table' WHERE {offset} = 2`)
	o.Exec(t, `INSERT INTO outbox_cancelled ({offset}, id) SELECT {offset}, id FROM outbox_parked WHERE {offset} = 8`)
	all, err := o.ParkedFigures(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	f := all[0]
	_, sinks := o.sample(t, nil)
	status, err := o.Status(t.Context(), store.StatusQuery{})
	require.NoError(t, err)

	counts := make(map[store.State]int)
	for _, s := range f.States {
		counts[s.State] = s.Count
	}
	require.Equal(t, map[store.State]int{store.StateRetrying: 2, store.StateBlocked: 1, store.StateDead: 3, store.StateScheduled: 1, store.StateCancelled: 1, store.StateSettling: 0}, counts)
	require.InDelta(t, 2*time.Hour, f.LongestDue, float64(time.Minute))
	require.Equal(t, []int{2, 1, 1}, []int{f.Overdue, f.DeadKeys, f.Hooks})
	require.Equal(t, "no such table", f.HookError)
	require.Equal(t, f.States, sinks["mail"].Parked.States)
	require.Equal(t, []store.ParkedCount{
		{Sink: "mail", State: store.StateBlocked, Count: 1}, {Sink: "mail", State: store.StateCancelled, Count: 1}, {Sink: "mail", State: store.StateDead, Count: 3},
		{Sink: "mail", State: store.StateRetrying, Count: 2, HookError: "no such table"}, {Sink: "mail", State: store.StateScheduled, Count: 1},
	}, status.Parked)
	require.Equal(t, status.Parked, store.ParkedCounts(all))
}
