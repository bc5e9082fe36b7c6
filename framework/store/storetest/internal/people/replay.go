package people

import (
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables/acts"
)

// replayFacts are about delivering rows of the log again.
var replayFacts = []kit.Fact{
	{"a replay counts settled rows, parked deliveries, and rows that the sink has yet to settle", replayCount},
	{"each bound of a replay leaves out its rows", replayBounds},
	{"a replay parks in log order, the first of each key due and the others behind it", replayOrder},
	{"a delivery that is replayed before its time is scheduled", replayScheduled},
	{"a replayed delivery goes behind the parked ones of its key", replayBehindParked},
	{"a replay continues where its action stands, and a batch is written once", replayMoved},
	{"a row that was settled ahead of the cursor is replayed, an unsettled one is not", replayAhead},
	{"a replay passes over a gap that is longer than a batch looks", replayGap},
	{"a replay of a log that was started again is refused", replayOtherLog},
	{"a pause covers all lanes of a sink, survives a cut, and reports whether it changed anything", pausing},
	{"the membership has what a forwarder last reported of its sinks", sinkStates},
}

// settled publishes envelopes and moves the cursor of the sink "mail" past them.
func settled(t *testing.T, o *kit.Outbox, envelopes ...notification.Envelope) store.Lease {
	t.Helper()
	o.Publish(t, envelopes...)
	return o.Passed(t, "mail")
}

// replayed returns a query for everything that the sink "mail" has settled.
func replayed(t *testing.T, o *kit.Outbox) store.ReplayQuery {
	t.Helper()
	return store.ReplayQuery{Sink: "mail", UpTo: o.Target(t).Last()}
}

// replay runs batches until the end.
func replay(t *testing.T, o *kit.Outbox, q store.ReplayQuery, limit int) (changed int) {
	t.Helper()
	o.BeginAction(t, "replay")
	b := store.ReplayBatch{ReplayQuery: q, Action: "replay", Limit: limit}
	for b.After < q.UpTo {
		result, err := o.Replay(t.Context(), b)
		require.NoError(t, err)
		require.LessOrEqual(t, result.Changed, limit)
		require.Greater(t, result.Through, b.After)
		changed += result.Changed
		b.After = result.Through
	}
	return changed
}

func countReplay(t *testing.T, o *kit.Outbox, q store.ReplayQuery) store.ReplayCount {
	t.Helper()
	count, err := o.CountReplay(t.Context(), q)
	require.NoError(t, err)
	count.Oldest = nil
	return count
}

func replayCount(t *testing.T, o *kit.Outbox) {
	dead, done := kit.Envelope("order.placed", "k"), kit.Envelope("order.placed", "k")
	lease := settled(t, o, dead, done)
	dead.Offset = 1
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Park = []store.Parked{{Envelope: dead, State: store.StateDead, FirstParkedAt: kit.Moment}}
	})
	o.Publish(t, kit.Envelope("order.placed", "k"), kit.Envelope("order.placed", "k"), kit.Envelope("order.placed", "k"))
	q := replayed(t, o)
	count, err := o.CountReplay(t.Context(), q)
	require.NoError(t, err)
	require.EqualValues(t, 1, count.Oldest.Offset)
	require.Equal(t, store.ReplayCount{Rows: 1, Parked: 1, Unsettled: 3}, countReplay(t, o, q))
	require.Equal(t, 1, replay(t, o, q, 10))
	require.Equal(t, []int64{1, 2}, find(t, o, store.ParkedFilter{}), "the dead one stays, and rows that the sink has yet to settle are left out")
	require.Equal(t, store.ReplayCount{Parked: 2, Unsettled: 3}, countReplay(t, o, q))

	q.Sink = "mial"
	_, err = o.CountReplay(t.Context(), q)
	require.ErrorIs(t, err, store.ErrUnknownSink)
	require.ErrorContains(t, err, "the outbox knows mail")
}

// replayScheduled replays rows that a sink passed before their time of delivery.
func replayScheduled(t *testing.T, o *kit.Outbox) {
	later := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	envelopes := []notification.Envelope{kit.Envelope("t", "k"), kit.Envelope("t", "k"), kit.Envelope("t", "k"), kit.Envelope("t", "")}
	envelopes[0].DeliverAt, envelopes[3].DeliverAt = later, later.Add(time.Hour)
	envelopes[2].DeliverAt = time.Now().Add(-time.Hour)
	settled(t, o, envelopes...)
	require.Equal(t, 4, replay(t, o, replayed(t, o), 10))
	due, next := o.DueAt(t, soon())
	require.Equal(t, []int64{2}, kit.Offsets(due), "a scheduled delivery holds nothing back")
	kit.RequireTime(t, later, next)
	require.Equal(t, []int64{1, 4}, find(t, o, store.ParkedFilter{States: []store.State{store.StateScheduled}}))
	require.Equal(t, []int64{3}, find(t, o, store.ParkedFilter{States: []store.State{store.StateBlocked}}))
}

func replayBounds(t *testing.T, o *kit.Outbox) {
	var envelopes []notification.Envelope
	for i, typ := range []string{"order.placed", "order.paid", "customer.moved", "order.placed"} {
		e := kit.Envelope(typ, "")
		e.OccurredOn = kit.After(time.Duration(i) * time.Minute)
		envelopes = append(envelopes, e)
	}
	settled(t, o, envelopes...)
	for name, check := range map[string]struct {
		change func(q *store.ReplayQuery)
		want   int64
	}{
		"none": {func(*store.ReplayQuery) {}, 4},
		"type": {func(q *store.ReplayQuery) { q.Types = []notification.TypeFilter{{Names: []string{"order.placed"}}} }, 2},
		"both types": {func(q *store.ReplayQuery) {
			q.Types = []notification.TypeFilter{{Prefixes: []string{"order."}}, {Names: []string{"order.paid", "customer.moved"}}}
		}, 1},
		"no type": {func(q *store.ReplayQuery) { q.Types = []notification.TypeFilter{notification.AllTypes, {}} }, 0},
		"since":   {func(q *store.ReplayQuery) { q.Since = kit.After(time.Minute) }, 3},
		"until":   {func(q *store.ReplayQuery) { q.Until = kit.After(time.Minute) }, 1},
		"between": {func(q *store.ReplayQuery) { q.Since, q.Until = kit.After(30*time.Second), kit.After(3*time.Minute) }, 2},
		"after":   {func(q *store.ReplayQuery) { q.After = 1 }, 3},
		"up to":   {func(q *store.ReplayQuery) { q.UpTo = 1 }, 1},
	} {
		q := replayed(t, o)
		check.change(&q)
		require.Equal(t, check.want, countReplay(t, o, q).Rows, name)
	}
	q := replayed(t, o)
	q.Types = []notification.TypeFilter{{Names: []string{"order.placed"}}}
	require.Equal(t, 2, replay(t, o, q, 10))
	require.Equal(t, []int64{1, 4}, find(t, o, store.ParkedFilter{}))
}

func replayOrder(t *testing.T, o *kit.Outbox) {
	keyed := kit.Envelope("order.placed", "k")
	keyed.Metadata, keyed.Payload, keyed.Version = notification.Metadata{"a": "b"}, []byte(`{"n":2}`), 3
	settled(t, o, keyed, kit.Envelope("t", ""), kit.Envelope("t", "k"), kit.Envelope("t", "l"), kit.Envelope("t", ""), kit.Envelope("t", "k"))
	require.Equal(t, 6, replay(t, o, replayed(t, o), 4))
	due, _ := o.DueAt(t, soon())
	require.Equal(t, []int64{1, 2, 4, 5}, kit.Offsets(due))
	kit.RequireSame(t, keyed, due[0].Envelope)
	require.Equal(t, store.StateRetrying, due[0].State)
	require.Zero(t, due[0].Attempt)
	require.Empty(t, due[0].LastError)
	require.WithinDuration(t, time.Now(), due[0].DueAt, time.Minute)
	behind := blockedOf(t, o, "k")
	require.Equal(t, []int64{3, 6}, kit.Offsets(behind), "also the one of a later batch")
	require.True(t, behind[0].DueAt.IsZero())
}

func replayBehindParked(t *testing.T, o *kit.Outbox) {
	lease := settled(t, o, kit.Envelope("t", "k"), kit.Envelope("t", "k"), kit.Envelope("t", "l"), kit.Envelope("t", "l"))
	waiting, given := kit.Retrying(1, "k", kit.Later()), kit.Dead(3, "l")
	o.Write(t, lease, func(c *store.Checkpoint) { c.Park = []store.Parked{waiting, given} })
	o.Exec(t, `DELETE FROM outbox WHERE {offset} IN (1, 3)`) // rows 1 and 3 are not those of the parked deliveries
	require.Equal(t, 2, replay(t, o, replayed(t, o), 10))
	got, _ := o.DueOffsets(t, asOfSoon)
	require.Equal(t, []int64{4}, got, "a dead delivery holds nothing back")
	behind := blockedOf(t, o, "k")
	require.Equal(t, []int64{2}, kit.Offsets(behind))
}

func replayMoved(t *testing.T, o *kit.Outbox) {
	settled(t, o, kit.Several(5)...)
	o.BeginAction(t, "replay")
	b := store.ReplayBatch{ReplayQuery: replayed(t, o), Action: "replay", Limit: 2}
	result, err := o.Replay(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, store.ReplayResult{Changed: 2, Through: 2}, result)
	before := o.DumpAll(t)
	_, err = o.Replay(t.Context(), b)
	require.ErrorIs(t, err, store.ErrActionMoved)
	require.Equal(t, before, o.DumpAll(t))

	action := o.ActionOf(t, "replay")
	require.EqualValues(t, 2, action.Count)
	require.EqualValues(t, 2, action.Through)
	b.After = action.Through
	b.Limit = 10
	result, err = o.Replay(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, store.ReplayResult{Changed: 3, Through: 5}, result)
	_, err = o.Action(t.Context(), "none")
	require.ErrorIs(t, err, store.ErrUnknownAction)
}

func replayAhead(t *testing.T, o *kit.Outbox) {
	o.Publish(t, kit.Several(5)...)
	lease := o.Hold(t, "mail")
	page := o.Page(t, 10)
	o.Write(t, lease, func(c *store.Checkpoint) { c.Position, c.Settled = page.After(1), store.OffsetRanges(4) })
	q := replayed(t, o)
	require.Equal(t, store.ReplayCount{Rows: 3, Unsettled: 2}, countReplay(t, o, q))
	require.Equal(t, 3, replay(t, o, q, 10))
	require.Equal(t, []int64{1, 2, 4}, find(t, o, store.ParkedFilter{}))
}

func replayGap(t *testing.T, o *kit.Outbox) {
	two := kit.Several(2)
	settled(t, o, two[0])
	o.Exec(t, o.Gap)
	settled(t, o, two[1])
	q := replayed(t, o)
	q.UpTo = 1_000_000
	o.BeginAction(t, "replay")
	b := store.ReplayBatch{ReplayQuery: q, Action: "replay", Limit: 10}
	result, err := o.Replay(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, store.ReplayResult{Changed: 1, Through: acts.ReplaySpan}, result)
	b.After = 1_000_000 - 1
	o.Exec(t, `UPDATE outbox_actions SET through = 999999`)
	result, err = o.Replay(t.Context(), b)
	require.NoError(t, err)
	require.EqualValues(t, 1_000_000, result.Through)
}

func replayOtherLog(t *testing.T, o *kit.Outbox) {
	settled(t, o, kit.Several(3)...)
	o.Exec(t, o.Restart...)
	o.Publish(t, kit.Several(1)...)
	_, err := o.CountReplay(t.Context(), replayed(t, o))
	require.ErrorIs(t, err, store.ErrOtherLog)
	o.BeginAction(t, "replay")
	_, err = o.Replay(t.Context(), store.ReplayBatch{ReplayQuery: replayed(t, o), Action: "replay", Limit: 10})
	require.ErrorIs(t, err, store.ErrOtherLog)
	require.Empty(t, find(t, o, store.ParkedFilter{}))
}

func pausing(t *testing.T, o *kit.Outbox) {
	require.NoError(t, o.Cut(t.Context(), "mail", 2))
	require.NoError(t, o.Cut(t.Context(), "web", 1))
	paused := func() (paused []bool) {
		for _, l := range o.Members(t).Lanes {
			paused = append(paused, l.Paused)
		}
		return paused
	}
	o.BeginAction(t, "a")
	for _, want := range []bool{true, false} {
		changed, err := o.Pause(t.Context(), "a", "mail", true)
		require.NoError(t, err)
		require.Equal(t, want, changed)
		require.Equal(t, []bool{true, true, false}, paused())
	}
	status := o.Report(t)
	require.True(t, status.Cursors[0].Paused)
	require.False(t, status.Cursors[2].Paused)

	require.NoError(t, o.Cut(t.Context(), "mail", 3))
	require.NoError(t, o.Recut(t.Context(), "mail", o.HoldLanes(t, "mail", 2)))
	require.Equal(t, []bool{true, true, true, false}, paused())

	changed, err := o.Pause(t.Context(), "a", "mail", false)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, []bool{false, false, false, false}, paused())
	action := o.ActionOf(t, "a")
	require.EqualValues(t, 2, action.Count, "the call that changed nothing is not counted")
	for _, sink := range []string{"mial", store.SinkPruner} {
		_, err = o.Pause(t.Context(), "a", sink, true)
		require.ErrorIs(t, err, store.ErrUnknownSink)
	}
}

func sinkStates(t *testing.T, o *kit.Outbox) {
	states := func() map[string]store.SinkState {
		membership := o.Members(t)
		require.Len(t, membership.Members, 1)
		return membership.Members[0].States
	}
	m := store.Member{Owner: "w1", Sinks: []string{"mail", "web"}, States: map[string]store.SinkState{
		"mail": {BreakerOpen: true, OpenSince: kit.Moment}, "web": {ThrottledUntil: kit.After(time.Hour)}}}
	require.NoError(t, o.Heartbeat(t.Context(), m, time.Hour))
	require.Equal(t, m.States, states())
	m.States = nil
	require.NoError(t, o.Heartbeat(t.Context(), m, time.Hour))
	require.Empty(t, states())
}
