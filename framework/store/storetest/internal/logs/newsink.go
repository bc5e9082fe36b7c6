package logs

import (
	"sync"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

var newSinkFacts = []kit.Fact{
	{"until a lane is leased every new sink begins at the oldest row", startOfFirstSinks},
	{"once a lane was leased a new sink begins behind the committed rows", startOfLaterSinks},
	{"a log whose sinks are all forgotten counts as used", startAfterForgetting},
	{"a log that only the pruner has leased counts as unused", startBesidePruner},
	{"a sink begins where its start says", startAsked},
	{"a sink begins before the first row in log order that occurred at a time or later", startAtTime},
	{"all lanes of a new sink begin at one place", startOfLanes},
	{"a start is for new sinks only", startOfOldSink},
	{"of many simultaneous starts of a sink one decides", startRace},
	{"a malformed start is refused", startRefused},
}

// startSink creates the cursors of a sink with one lane.
func startSink(t *testing.T, o *kit.Outbox, sink string, start store.Start) store.Created {
	t.Helper()
	created, err := o.Store.Cut(t.Context(), sink, 1, start)
	require.NoError(t, err)
	return created
}

// rest returns the ids that a sink with one lane has not passed.
func rest(t *testing.T, o *kit.Outbox, sink string) []string {
	t.Helper()
	lease := o.Hold(t, sink)
	envelopes, _ := o.Read(t, lease.Position, kit.All, 2)
	require.NoError(t, o.Release(t.Context(), lease))
	return kit.IDs(envelopes)
}

func startOfFirstSinks(t *testing.T, o *kit.Outbox) {
	envelopes := kit.Several(3)
	o.Publish(t, envelopes...)
	for _, sink := range []string{"events", "mail", store.SinkUnrouted} {
		require.Equal(t, store.Created{Lanes: 1, Start: store.StartOldest}, startSink(t, o, sink, ""))
	}
	require.Equal(t, kit.IDs(envelopes), rest(t, o, "events"))
	require.Equal(t, kit.IDs(envelopes), rest(t, o, store.SinkUnrouted))
}

func startOfLaterSinks(t *testing.T, o *kit.Outbox) {
	o.Publish(t, kit.Several(3)...)
	o.Hold(t, "events")
	require.Equal(t, store.Created{Lanes: 1, Start: store.StartNow, Passed: 3}, startSink(t, o, "mail", ""))
	later := kit.Several(3)
	o.Publish(t, later...)
	require.Equal(t, kit.IDs(later), rest(t, o, "mail"))
	require.Equal(t, store.StartNow, startSink(t, o, store.SinkUnrouted, "").Start)
}

func startAfterForgetting(t *testing.T, o *kit.Outbox) {
	o.Publish(t, kit.Several(3)...)
	startSink(t, o, "never", "")
	o.ForgetSink(t, "never")
	require.Equal(t, store.StartOldest, startSink(t, o, "events", "").Start, "nothing was forwarded to it")

	require.NoError(t, o.Release(t.Context(), o.Hold(t, "events")))
	o.ForgetSink(t, "events")
	require.Equal(t, store.Created{Lanes: 1, Start: store.StartNow, Passed: 3}, startSink(t, o, "events", ""))
	o.ForgetSink(t, "events")
	require.Equal(t, store.StartNow, startSink(t, o, "events", "").Start, "again")
	o.Hold(t, store.SinkPruner)
}

func startBesidePruner(t *testing.T, o *kit.Outbox) {
	o.Publish(t, kit.Several(3)...)
	require.Equal(t, store.Created{Lanes: 1, Start: store.StartOldest}, startSink(t, o, store.SinkPruner, ""))
	o.Hold(t, store.SinkPruner)
	require.Equal(t, store.StartOldest, startSink(t, o, "mail", "").Start)
}

func startAsked(t *testing.T, o *kit.Outbox) {
	envelopes := kit.Several(5)
	o.Publish(t, envelopes...)
	require.Equal(t, store.Created{Lanes: 1, Start: store.StartNow, Passed: 5}, startSink(t, o, "new", store.StartNow))
	o.Hold(t, "events")
	require.Equal(t, store.Created{Lanes: 1, Start: store.StartOldest}, startSink(t, o, "old", store.StartOldest))
	require.Empty(t, rest(t, o, "new"))
	require.Equal(t, kit.IDs(envelopes), rest(t, o, "old"))

	for _, c := range o.Report(t).Cursors {
		if c.Sink == "new" {
			require.Zero(t, c.Pending)
		}
	}
}

func startAtTime(t *testing.T, o *kit.Outbox) {
	hours := func(n int) time.Time { return kit.Moment.Add(time.Duration(n) * time.Hour) }
	envelopes := kit.Occurring(hours(0), hours(1), hours(4), hours(2), hours(5))
	o.Publish(t, envelopes[:3]...)
	o.Publish(t, envelopes[3:]...)
	for _, at := range []struct {
		name   string
		time   time.Time
		passed int
	}{
		{"before all rows", hours(-1), 0},
		{"of the first row", hours(0), 0},
		{"between two rows", hours(1).Add(time.Minute), 2},
		{"in another zone", hours(1).In(time.FixedZone("", 7200)), 1},
		{"of a row behind a later one", hours(2), 2},
		{"of the last row", hours(5), 4},
		{"after all rows", hours(6), 5},
	} {
		start := store.StartAt(at.time)
		require.Equal(t, store.Created{Lanes: 1, Start: start, Passed: at.passed}, startSink(t, o, at.name, start), at.name)
		require.Equal(t, kit.IDs(envelopes[at.passed:]), rest(t, o, at.name), at.name)
	}
	later := kit.Several(1)
	later[0].OccurredOn = hours(-9)
	o.Publish(t, later...)
	require.Equal(t, kit.IDs(later), rest(t, o, "after all rows"), "whenever it occurred")
	require.Equal(t, append(kit.IDs(envelopes[2:]), later[0].ID), rest(t, o, "between two rows"))
}

func startOfLanes(t *testing.T, o *kit.Outbox) {
	o.Publish(t, kit.Several(20)...)
	created, err := o.Store.Cut(t.Context(), "mail", 3, store.StartNow)
	require.NoError(t, err)
	require.Equal(t, store.Created{Lanes: 3, Start: store.StartNow, Passed: 20}, created)
	later := kit.Several(20)
	o.Publish(t, later...)
	var got []string
	for _, lease := range o.HoldLanes(t, "mail", 3) {
		envelopes, _ := o.Read(t, lease.Position, kit.OfLane(lease.Lane), 100)
		got = append(got, kit.IDs(envelopes)...)
	}
	require.ElementsMatch(t, kit.IDs(later), got)
}

func startOfOldSink(t *testing.T, o *kit.Outbox) {
	envelopes := kit.Several(3)
	o.Publish(t, envelopes...)
	startSink(t, o, "mail", store.StartOldest)
	require.Zero(t, startSink(t, o, "mail", store.StartNow))
	require.Equal(t, kit.IDs(envelopes), rest(t, o, "mail"))
}

func startRace(t *testing.T, o *kit.Outbox) {
	o.Publish(t, kit.Several(3)...)
	var wg sync.WaitGroup
	all := make(chan store.Created, 8)
	for i := range cap(all) {
		wg.Go(func() {
			created, err := o.Store.Cut(t.Context(), "mail", 2, []store.Start{store.StartOldest, store.StartNow}[i%2])
			if err != nil {
				t.Error(err)
			}
			all <- created
		})
	}
	wg.Wait()
	close(all)
	var made []store.Created
	for created := range all {
		if created.Lanes > 0 {
			made = append(made, created)
		}
	}
	require.Len(t, made, 1)
	pending := map[store.Start]int{store.StartOldest: 3, store.StartNow: 0}[made[0].Start]
	got := 0
	for _, lease := range o.HoldLanes(t, "mail", 2) {
		envelopes, _ := o.Read(t, lease.Position, kit.OfLane(lease.Lane), 100)
		got += len(envelopes)
	}
	require.Equal(t, pending, got)
}

func startRefused(t *testing.T, o *kit.Outbox) {
	before := o.DumpAll(t)
	for _, start := range []store.Start{"newest", "2026-03-01", "Oldest", " now", "2026-03-01 00:00:00Z"} {
		_, err := o.Store.Cut(t.Context(), "mail", 1, start)
		require.ErrorIs(t, err, store.ErrStart, start)
		require.ErrorContains(t, err, string(start))
	}
	require.Equal(t, before, o.DumpAll(t))
}
