package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

var sampleFacts = []fact{
	{"a sample of an unused outbox has the named sinks at zero", emptySample},
	{"a sample has what each sink has before it, and for how long", sampledCursors},
	{"a sample has what is parked by state, what is overdue and the keys of what is dead", sampledParked},
	{"the counts of a sample stop at the limit", sampleLimit},
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
	require.Len(t, sinks["mail"].Parked, 5)
	for _, p := range sinks["mail"].Parked {
		require.Zero(t, p.Count)
		require.True(t, p.Oldest.IsZero())
	}
	require.Zero(t, sample.Forwarders)
	require.Nil(t, sample.Oldest)
	require.Positive(t, sample.LogBytes)
	require.Zero(t, sample.Held)
}

func sampledCursors(t *testing.T, o *outbox) {
	rows := several(10)
	for i := range rows {
		rows[i].OccurredOn = time.Now().Add(-time.Hour + time.Duration(i)*time.Minute)
	}
	rows[9].Type = "order.shipped"
	o.publish(t, rows...)
	page, err := o.reader(t, nil, all).Next(t.Context(), o.probe(t), 10)
	require.NoError(t, err)
	events, mail := o.acquire(t, "events"), o.acquire(t, "mail")
	o.checkpoint(t, events, func(c *store.Checkpoint) { c.Position = page.End })
	o.checkpoint(t, mail, func(c *store.Checkpoint) {
		c.Position = page.After(1)
		c.Settled = store.OffsetRanges(page.Envelopes[5].Offset, page.Envelopes[7].Offset)
	})
	require.NoError(t, o.Release(t.Context(), events))
	o.acquire(t, "web")
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
		require.Equal(t, []store.LaneSample{{Pending: c.pending, Lag: s.Lag}}, s.Lanes, c.sink)
		require.False(t, s.Paused)
	}
}

func sampledParked(t *testing.T, o *outbox) {
	o.park(t, retrying(1, "k", time.Now().Add(-time.Hour)), blocked(2, "k"), dead(3, "a"), dead(4, "a"), dead(5, "b"), dead(6, ""),
		scheduled(7, "", time.Now().Add(time.Hour)))
	_, sinks := o.sample(t, nil)
	counts := make(map[store.State]int)
	for _, p := range sinks["mail"].Parked {
		counts[p.State] = p.Count
		require.Equal(t, p.Count == 0, p.Oldest.IsZero(), p.State)
	}
	require.Equal(t, map[store.State]int{store.StateRetrying: 1, store.StateBlocked: 1, store.StateDead: 4, store.StateScheduled: 1, store.StateSettling: 0}, counts)
	require.Equal(t, 1, sinks["mail"].Overdue)
	require.Equal(t, 2, sinks["mail"].DeadKeys)
}

func sampleLimit(t *testing.T, o *outbox) {
	o.acquire(t, "mail")
	o.publish(t, several(1000)...)
	for rows := 1000; rows <= store.SampleLimit; rows *= 2 {
		o.exec(t, `INSERT INTO outbox (id, type, occurred_on, payload) SELECT id, type, occurred_on, payload FROM outbox`)
	}
	o.exec(t, `INSERT INTO outbox_parked (sink, {offset}, slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, due_at)
		SELECT 'mail', {offset}, slot, id, type, version, key, occurred_on, metadata, payload, 'retrying', 1, occurred_on FROM outbox`)
	_, sinks := o.sample(t, nil)
	require.Equal(t, store.SampleLimit, sinks["mail"].Pending)
	require.Equal(t, store.SampleLimit, sinks["mail"].Parked[0].Count)
	require.Equal(t, store.SampleLimit, sinks["mail"].Overdue)
}
