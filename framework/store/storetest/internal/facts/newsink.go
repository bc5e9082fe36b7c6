package facts

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

var newSinkFacts = []fact{
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

// start creates the cursors of a sink with one lane.
func (o *Outbox) start(t *testing.T, sink string, start store.Start) store.Created {
	t.Helper()
	created, err := o.Store.Cut(t.Context(), sink, 1, start)
	require.NoError(t, err)
	return created
}

// rest returns the ids that a sink with one lane has not passed.
func (o *Outbox) rest(t *testing.T, sink string) []string {
	t.Helper()
	lease := o.Hold(t, sink)
	envelopes, _ := o.Read(t, lease.Position, All, 2)
	require.NoError(t, o.Release(t.Context(), lease))
	return IDs(envelopes)
}

func startOfFirstSinks(t *testing.T, o *Outbox) {
	envelopes := Several(3)
	o.Publish(t, envelopes...)
	for _, sink := range []string{"events", "mail", store.SinkUnrouted} {
		require.Equal(t, store.Created{Lanes: 1, Start: store.StartOldest}, o.start(t, sink, ""))
	}
	require.Equal(t, IDs(envelopes), o.rest(t, "events"))
	require.Equal(t, IDs(envelopes), o.rest(t, store.SinkUnrouted))
}

func startOfLaterSinks(t *testing.T, o *Outbox) {
	o.Publish(t, Several(3)...)
	o.Hold(t, "events")
	require.Equal(t, store.Created{Lanes: 1, Start: store.StartNow, Passed: 3}, o.start(t, "mail", ""))
	later := Several(3)
	o.Publish(t, later...)
	require.Equal(t, IDs(later), o.rest(t, "mail"))
	require.Equal(t, store.StartNow, o.start(t, store.SinkUnrouted, "").Start)
}

func startAfterForgetting(t *testing.T, o *Outbox) {
	o.Publish(t, Several(3)...)
	o.start(t, "never", "")
	o.forget(t, "never")
	require.Equal(t, store.StartOldest, o.start(t, "events", "").Start, "nothing was forwarded to it")

	require.NoError(t, o.Release(t.Context(), o.Hold(t, "events")))
	o.forget(t, "events")
	require.Equal(t, store.Created{Lanes: 1, Start: store.StartNow, Passed: 3}, o.start(t, "events", ""))
	o.forget(t, "events")
	require.Equal(t, store.StartNow, o.start(t, "events", "").Start, "again")
	o.Hold(t, store.SinkPruner)
}

func startBesidePruner(t *testing.T, o *Outbox) {
	o.Publish(t, Several(3)...)
	require.Equal(t, store.Created{Lanes: 1, Start: store.StartOldest}, o.start(t, store.SinkPruner, ""))
	o.Hold(t, store.SinkPruner)
	require.Equal(t, store.StartOldest, o.start(t, "mail", "").Start)
}

func startAsked(t *testing.T, o *Outbox) {
	envelopes := Several(5)
	o.Publish(t, envelopes...)
	require.Equal(t, store.Created{Lanes: 1, Start: store.StartNow, Passed: 5}, o.start(t, "new", store.StartNow))
	o.Hold(t, "events")
	require.Equal(t, store.Created{Lanes: 1, Start: store.StartOldest}, o.start(t, "old", store.StartOldest))
	require.Empty(t, o.rest(t, "new"))
	require.Equal(t, IDs(envelopes), o.rest(t, "old"))

	for _, c := range o.Report(t).Cursors {
		if c.Sink == "new" {
			require.Zero(t, c.Pending)
		}
	}
}

func startAtTime(t *testing.T, o *Outbox) {
	hours := func(n int) time.Time { return Moment.Add(time.Duration(n) * time.Hour) }
	envelopes := Occurring(hours(0), hours(1), hours(4), hours(2), hours(5))
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
		require.Equal(t, store.Created{Lanes: 1, Start: start, Passed: at.passed}, o.start(t, at.name, start), at.name)
		require.Equal(t, IDs(envelopes[at.passed:]), o.rest(t, at.name), at.name)
	}
	later := Several(1)
	later[0].OccurredOn = hours(-9)
	o.Publish(t, later...)
	require.Equal(t, IDs(later), o.rest(t, "after all rows"), "whenever it occurred")
	require.Equal(t, append(IDs(envelopes[2:]), later[0].ID), o.rest(t, "between two rows"))
}

func startOfLanes(t *testing.T, o *Outbox) {
	o.Publish(t, Several(20)...)
	created, err := o.Store.Cut(t.Context(), "mail", 3, store.StartNow)
	require.NoError(t, err)
	require.Equal(t, store.Created{Lanes: 3, Start: store.StartNow, Passed: 20}, created)
	later := Several(20)
	o.Publish(t, later...)
	var got []string
	for _, lease := range o.HoldLanes(t, "mail", 3) {
		envelopes, _ := o.Read(t, lease.Position, ofLane(lease.Lane), 100)
		got = append(got, IDs(envelopes)...)
	}
	require.ElementsMatch(t, IDs(later), got)
}

func startOfOldSink(t *testing.T, o *Outbox) {
	envelopes := Several(3)
	o.Publish(t, envelopes...)
	o.start(t, "mail", store.StartOldest)
	require.Zero(t, o.start(t, "mail", store.StartNow))
	require.Equal(t, IDs(envelopes), o.rest(t, "mail"))
}

func startRace(t *testing.T, o *Outbox) {
	o.Publish(t, Several(3)...)
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
		envelopes, _ := o.Read(t, lease.Position, ofLane(lease.Lane), 100)
		got += len(envelopes)
	}
	require.Equal(t, pending, got)
}

func startRefused(t *testing.T, o *Outbox) {
	before := o.DumpAll(t)
	for _, start := range []store.Start{"newest", "2026-03-01", "Oldest", " now", "2026-03-01 00:00:00Z"} {
		_, err := o.Store.Cut(t.Context(), "mail", 1, start)
		require.ErrorIs(t, err, store.ErrStart, start)
		require.ErrorContains(t, err, string(start))
	}
	require.Equal(t, before, o.DumpAll(t))
}
