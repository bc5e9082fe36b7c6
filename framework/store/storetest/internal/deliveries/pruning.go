package deliveries

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

// pruningFacts apply to stores that are a store.Pruner.
var (
	pruningFacts = []kit.Fact{
		{"an old row that all sinks have settled is removed", oldRowsGo},
		{"a row that one sink has not settled stays", unsettledStays},
		{"a young settled row stays, and older ones behind it are removed", youngStays},
		{"a row that occurred in the far future keeps no other", farFuture},
		{"times that plain SQL wrote count", plainTimes},
		{"a look is bounded and continues behind the previous one", boundedLook},
		{"a parked delivery keeps its envelope", parkedKeeps},
		{"offsets settled out of order stay until the cursor is behind them", settledOutOfOrder},
		{"a sink without cursors keeps everything", newSinkKeeps},
		{"a sink with fewer cursors than lanes keeps everything", missingLaneKeeps},
		{"without sinks everything is kept", noSinkKeeps},
		{"the pruner's cursor keeps nothing and is not shown", prunerIsNoSink},
		{"in a log that was started again everything is kept", restartedLogKeeps},
		{"readers continue behind the removed rows, also new ones", readOn},
		{"two simultaneous pruners remove each row once", twoAtOnce},
		{"old receipts are removed, at most as many as asked for", oldReceiptsGo},
		{"status shows which sink keeps which row", statusHolders},
	}
	forgetFacts = []kit.Fact{
		{"a forgotten sink leaves nothing and keeps nothing", forgotten},
		{"a sink with a held lane is not forgotten", forgetLeased},
		{"an unknown sink is refused with the names of the known ones", forgetUnknown},
		{"the pruner cannot be forgotten", forgetPruner},
	}
)

// longAgo is the time of an old row, by the clock of any database.
var longAgo = time.Date(2001, 2, 3, 4, 5, 6, 789000, time.UTC)

// day is the age at which rows are removed.
const day = 24 * time.Hour

// publishOld appends n old rows and returns them as a page.
func publishOld(t *testing.T, o *kit.Outbox, n int) store.Page {
	t.Helper()
	return pageOf(t, o, kit.Occurring(slices.Repeat([]time.Time{longAgo}, n)...)...)
}

// settle moves the only cursor of a sink.
func settle(t *testing.T, o *kit.Outbox, sink string, at store.Position) {
	t.Helper()
	lease := o.Hold(t, sink)
	o.Write(t, lease, func(c *store.Checkpoint) { c.Position = at })
	require.NoError(t, o.Release(t.Context(), lease))
}

// prune removes what is older than a day.
func prune(t *testing.T, o *kit.Outbox, sinks ...string) store.Pruned {
	t.Helper()
	return pruneFrom(t, o, store.Pruning{Limit: 100, Sinks: sinks})
}

func pruneFrom(t *testing.T, o *kit.Outbox, e store.Pruning) store.Pruned {
	t.Helper()
	e.Age = day
	pruned, err := pruner(t, o).Prune(t.Context(), e)
	require.NoError(t, err)
	return pruned
}

// log returns the ids of the rows in the log.
func log(t *testing.T, o *kit.Outbox) []string {
	t.Helper()
	envelopes, _ := o.Read(t, nil, kit.All, 1000)
	return kit.IDs(envelopes)
}

func oldRowsGo(t *testing.T, o *kit.Outbox) {
	page := publishOld(t, o, 5)
	settle(t, o, "mail", page.End)
	settle(t, o, "events", page.End)
	require.Equal(t, store.Pruned{Looked: 5, Removed: 5, Through: page.Envelopes[4].Offset}, prune(t, o, "mail"))
	require.Empty(t, log(t, o))
	again := prune(t, o, "mail")
	require.Zero(t, again.Looked)
	require.Zero(t, again.Removed)
}

func unsettledStays(t *testing.T, o *kit.Outbox) {
	page := publishOld(t, o, 5)
	settle(t, o, "mail", page.End)
	settle(t, o, "events", page.After(1))
	require.Equal(t, 2, prune(t, o, "mail", "events").Removed)
	require.Equal(t, kit.IDs(page.Envelopes[2:]), log(t, o))
	require.Zero(t, prune(t, o, "mail").Removed, "even if events is not named")

	settle(t, o, "events", page.End)
	require.Equal(t, 3, prune(t, o, "mail").Removed)
}

func youngStays(t *testing.T, o *kit.Outbox) {
	young := time.Now().Add(-day / 2)
	envelopes := kit.Occurring(longAgo, young, longAgo, time.Now().Add(-day-time.Hour))
	o.Publish(t, envelopes...)
	o.Pass(t, "mail")
	pruned := prune(t, o, "mail")
	require.Equal(t, 4, pruned.Looked)
	require.Equal(t, 3, pruned.Removed)
	require.Equal(t, kit.IDs(envelopes[1:2]), log(t, o))
}

func farFuture(t *testing.T, o *kit.Outbox) {
	envelopes := kit.Occurring(time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC), longAgo, longAgo)
	o.Publish(t, envelopes...)
	o.Pass(t, "mail")
	require.Equal(t, 2, prune(t, o, "mail").Removed)
	require.Equal(t, kit.IDs(envelopes[:1]), log(t, o))
}

func plainTimes(t *testing.T, o *kit.Outbox) {
	zone := "+02:00"
	if o.NoZones {
		zone = ""
	}
	o.Exec(t, `INSERT INTO outbox (id, type, payload, occurred_on) VALUES
		('old', 't', '{}', '2001-02-03 04:05:06'), ('old in ISO 8601', 't', '{}', '2001-02-03T04:05:06`+zone+`')`,
		`INSERT INTO outbox (id, type, payload, occurred_on) VALUES ('young', 't', '{}', CURRENT_TIMESTAMP)`)
	o.Pass(t, "mail")
	require.Equal(t, 2, prune(t, o, "mail").Removed)
	require.Equal(t, []string{"young"}, log(t, o))
}

func boundedLook(t *testing.T, o *kit.Outbox) {
	page := publishOld(t, o, 7)
	settle(t, o, "mail", page.End)
	e := store.Pruning{Limit: 3, Sinks: []string{"mail"}}
	for _, left := range []int{4, 1, 0} {
		pruned := pruneFrom(t, o, e)
		require.Equal(t, min(3, pruned.Looked), pruned.Removed)
		require.Len(t, log(t, o), left)
		e.After = pruned.Through
	}
	require.Equal(t, page.Envelopes[6].Offset, e.After)
	require.Equal(t, e.After, pruneFrom(t, o, e).Through, "without more rows it stays")
}

func parkedKeeps(t *testing.T, o *kit.Outbox) {
	page := publishOld(t, o, 2)
	lease := o.Hold(t, "mail")
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Position = page.End
		c.Park = []store.Parked{{Envelope: page.Envelopes[0], State: store.StateRetrying, DueAt: kit.Moment, FirstParkedAt: kit.Moment}}
	})
	require.Equal(t, 2, prune(t, o, "mail").Removed)
	due, _ := o.DueAt(t, kit.Moment)
	require.Len(t, due, 1)
	kit.RequireSame(t, page.Envelopes[0], due[0].Envelope)
}

func settledOutOfOrder(t *testing.T, o *kit.Outbox) {
	page := publishOld(t, o, 5)
	lease := o.Hold(t, "mail")
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Position, c.Settled = page.After(0), store.OffsetRanges(page.Envelopes[3].Offset)
	})
	require.Equal(t, 1, prune(t, o, "mail").Removed)
	require.Equal(t, kit.IDs(page.Envelopes[1:]), log(t, o))
}

func newSinkKeeps(t *testing.T, o *kit.Outbox) {
	page := publishOld(t, o, 3)
	settle(t, o, "mail", page.End)
	require.Zero(t, prune(t, o, "mail", "web").Removed, "named, but without cursors")
	o.Hold(t, "web")
	require.Zero(t, prune(t, o, "mail").Removed, "with a cursor at the beginning")
	require.Len(t, log(t, o), 3)
}

func missingLaneKeeps(t *testing.T, o *kit.Outbox) {
	page := publishOld(t, o, 3)
	for _, l := range store.Lanes("mail", 3) {
		require.Zero(t, prune(t, o, "mail").Removed, "before lane %d", l.Number)
		lease := o.HoldLane(t, l, "w1")
		o.Write(t, lease, func(c *store.Checkpoint) { c.Position = page.End })
	}
	o.Exec(t, `UPDATE outbox_cursors SET lanes = 4`)
	require.Zero(t, prune(t, o, "mail").Removed, "the fourth is missing")
	o.Exec(t, `UPDATE outbox_cursors SET lanes = 3`)
	require.Equal(t, 3, prune(t, o, "mail").Removed)
}

func noSinkKeeps(t *testing.T, o *kit.Outbox) {
	publishOld(t, o, 3)
	require.Zero(t, prune(t, o).Removed)
}

func prunerIsNoSink(t *testing.T, o *kit.Outbox) {
	page := publishOld(t, o, 3)
	settle(t, o, "mail", page.End)
	lease := o.Hold(t, store.SinkPruner)
	o.Write(t, lease, func(*store.Checkpoint) {})
	require.Equal(t, 3, prune(t, o, "mail").Removed)
	status := o.Report(t)
	require.Len(t, status.Cursors, 1)
	require.Empty(t, status.Holders)
}

func restartedLogKeeps(t *testing.T, o *kit.Outbox) {
	publishOld(t, o, 5)
	o.Pass(t, "mail")
	o.Exec(t, o.Restart...)
	o.Publish(t, kit.Occurring(longAgo, longAgo)...)
	require.Zero(t, prune(t, o, "mail").Removed)
	envelopes, _ := o.Read(t, nil, kit.All, 10)
	require.Len(t, envelopes, 2)
	holders := o.Report(t).Holders
	require.Len(t, holders, 1)
	require.NotEmpty(t, holders[0].Reason)
}

func readOn(t *testing.T, o *kit.Outbox) {
	page := publishOld(t, o, 5)
	settle(t, o, "mail", page.End)
	require.Equal(t, 5, prune(t, o, "mail").Removed)
	want := kit.Several(3)
	o.Publish(t, want...)
	for name, at := range map[string]json.RawMessage{
		"at the end": kit.Marshal(t, page.End), "amid the removed rows": kit.Marshal(t, page.After(1)), "new": nil,
	} {
		got, _ := o.Read(t, at, kit.All, 2)
		require.Equal(t, kit.IDs(want), kit.IDs(got), name)
	}
}

func twoAtOnce(t *testing.T, o *kit.Outbox) {
	page := publishOld(t, o, 200)
	settle(t, o, "mail", page.End)
	pruner := pruner(t, o)
	var pruners sync.WaitGroup
	var mu sync.Mutex
	removed := 0
	for range 2 {
		pruners.Go(func() {
			for range 10 {
				pruned, err := pruner.Prune(t.Context(), store.Pruning{Age: day, Limit: 50, Sinks: []string{"mail"}})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				removed += pruned.Removed
				mu.Unlock()
			}
		})
	}
	pruners.Wait()
	for more := 1; more > 0; removed += more { // rows that the other pruner had locked
		more = prune(t, o, "mail").Removed
	}
	require.Empty(t, log(t, o))
	require.Equal(t, 200, removed)
}

func oldReceiptsGo(t *testing.T, o *kit.Outbox) {
	lease := o.Hold(t, "mail")
	o.Write(t, lease, func(c *store.Checkpoint) {
		for i, at := range []time.Time{longAgo, time.Now().Add(-time.Hour), longAgo, longAgo} {
			c.Receipts = append(c.Receipts, store.Receipt{Offset: int64(i + 1), ID: fmt.Sprint(i + 1), Receipt: "r", Attempt: 1, DeliveredAt: at})
		}
	})
	for _, want := range []int{2, 1, 0} {
		removed, err := o.PruneLeftovers(t.Context(), store.LeftoverReceipts, day, 2)
		require.NoError(t, err)
		require.Equal(t, want, removed)
	}
	require.Equal(t, "id=2 \n", o.Dump(t, `SELECT id FROM outbox_receipts`))
}

func statusHolders(t *testing.T, o *kit.Outbox) {
	require.Nil(t, o.Report(t).Oldest)
	page := publishOld(t, o, 5)
	settle(t, o, "mail", page.After(1))
	settle(t, o, "events", page.End)
	_ = o.HoldLane(t, store.Lanes("web", 2)[1], "w1")
	o.Exec(t, `DELETE FROM outbox_cursors WHERE sink = 'web' AND lane = 0`) // some stores create the cursors of all lanes at once

	status := o.Report(t)
	require.Equal(t, &store.Row{Offset: page.Envelopes[0].Offset, OccurredOn: longAgo}, status.Oldest)
	require.Len(t, status.Holders, 2)
	require.Equal(t, store.Holder{Sink: "mail", Row: store.Row{Offset: page.Envelopes[2].Offset, OccurredOn: longAgo}}, status.Holders[0])
	require.Equal(t, "web", status.Holders[1].Sink)
	require.Equal(t, page.Envelopes[0].Offset, status.Holders[1].Offset)
	require.Contains(t, status.Holders[1].Reason, "1 of its 2 lanes")

	holders, err := o.Holders(t.Context(), []string{"mail", "sms"})
	require.NoError(t, err)
	require.Len(t, holders, 3)
	require.Equal(t, "sms", holders[2].Sink)
	require.Contains(t, holders[2].Reason, "no cursor yet")
}

func forgotten(t *testing.T, o *kit.Outbox) {
	page := publishOld(t, o, 3)
	settle(t, o, "events", page.End)
	lease := o.Hold(t, "mail")
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Park = []store.Parked{kit.Dead(1, ""), kit.Blocked(2, "k")}
		c.Receipts = []store.Receipt{{Offset: 3, ID: "3", Receipt: "r", Attempt: 1, DeliveredAt: kit.Moment}}
	})
	require.NoError(t, o.Release(t.Context(), lease))
	require.Zero(t, prune(t, o, "events").Removed)

	want := store.Traces{Sink: "mail", Cursors: 1, Parked: 2, Receipts: 1}
	traces, err := o.Traces(t.Context(), "mail")
	require.NoError(t, err)
	require.Equal(t, want, traces)
	require.Equal(t, want, o.ForgetSink(t, "mail"))

	require.NotContains(t, o.DumpAll(t), "mail")
	require.Contains(t, o.DumpAll(t), "events")
	require.Equal(t, 3, prune(t, o, "events").Removed)
	_, err = o.Forget(t.Context(), "mail")
	require.ErrorIs(t, err, store.ErrUnknownSink, "twice")
}

func forgetLeased(t *testing.T, o *kit.Outbox) {
	o.Park(t, kit.Dead(1, ""))
	before := o.DumpAll(t)
	_, err := o.Forget(t.Context(), "mail")
	require.ErrorIs(t, err, store.ErrLeaseHeld)
	require.ErrorContains(t, err, "w1")
	require.Equal(t, before, o.DumpAll(t))

	expireLeases(t, o)
	o.ForgetSink(t, "mail")
}

func forgetUnknown(t *testing.T, o *kit.Outbox) {
	_, err := o.Traces(t.Context(), "mial")
	require.ErrorIs(t, err, store.ErrUnknownSink)
	o.Hold(t, "mail")
	o.Hold(t, "events")
	o.Hold(t, store.SinkPruner)
	for _, ask := range []func() error{
		func() error { _, err := o.Traces(t.Context(), "mial"); return err },
		func() error { _, err := o.Forget(t.Context(), "mial"); return err },
	} {
		err := ask()
		require.ErrorIs(t, err, store.ErrUnknownSink)
		require.ErrorContains(t, err, "events, mail")
		require.NotContains(t, err.Error(), store.SinkPruner)
	}
}

func forgetPruner(t *testing.T, o *kit.Outbox) {
	o.Hold(t, store.SinkPruner)
	before := o.DumpAll(t)
	_, err := o.Forget(t.Context(), store.SinkPruner)
	require.ErrorIs(t, err, store.ErrUnknownSink)
	require.Equal(t, before, o.DumpAll(t))
}

// pruner skips the fact if the store removes whole partitions.
func pruner(t *testing.T, o *kit.Outbox) store.Pruner {
	t.Helper()
	if p, ok := o.Store.(store.Partitioner); ok && p.Partitioned() {
		t.Skip("rows of a partitioned log go by their partitions")
	}
	return o.Store
}
