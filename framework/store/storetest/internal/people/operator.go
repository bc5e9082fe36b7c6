package people

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// operatorFacts are about operations on parked deliveries.
var operatorFacts = []kit.Fact{
	{"each filter selects its deliveries", parkedFilters},
	{"the next page of parked deliveries begins where the last one ended", parkedPages},
	{"a filter with an unknown sink is refused with the names of the known ones", unknownFilterSink},
	{"a requeued delivery is due, has no attempts and keeps its error", requeued},
	{"only dead and retrying deliveries are requeued", requeueable},
	{"dead deliveries of a key are requeued in their order, also across batches", requeuedKey},
	{"discarded deliveries are removed, in batches", discarded},
	{"heads are the first dead deliveries of their keys", heads},
	{"a batch that changes something raises the revision of its sink's lanes only", revisions},
	{"an action of many batches raises the revision a few times only, and at its end", revisionOfMany},
	{"an action on several sinks raises the revision of each", revisionOfSinks},
	{"an action records what was done, even if it did not end", actions},
	{"a batch of an action that was not begun changes nothing", noAction},
	{"an action records who asked for it, from where, why, and how much there was to do", actionRequest},
	{"an action is begun once", actionOnce},
	{"a batch of an action that was cancelled changes nothing", cancelledAction},
	{"an action that writes nothing for a while counts as interrupted", interruptedAction},
}

// blockedOf returns the blocked deliveries of a key of the sink "mail".
func blockedOf(t *testing.T, o *kit.Outbox, key string) (blocked []store.Parked) {
	t.Helper()
	found, err := o.FindParked(t.Context(), store.ParkedFilter{Sink: "mail", Key: key, States: []store.State{store.StateBlocked}}, store.ParkedPlace{}, 100)
	require.NoError(t, err)
	for i := range found {
		blocked = append(blocked, found[i].Parked)
	}
	return blocked
}

func parkedFilters(t *testing.T, o *kit.Outbox) {
	a, b, c, d, e := kit.Retrying(1, "k", kit.Moment), kit.Dead(2, "l"), kit.Blocked(3, "k"), kit.Scheduled(4, "", kit.Moment), kit.Dead(5, "k")
	a.LastError, b.LastError = "dial tcp: Connection REFUSED", "100% _bad_"
	b.Envelope.Type, c.Envelope.Type = "order.paid", "orders"
	odd := `a "b".c\d[0] 'e' $ % ü<` // a name and a value
	a.Envelope.Metadata = notification.Metadata{"tenant": "acme", "region": "eu", odd: odd, "b": "none"}
	b.Envelope.Metadata = notification.Metadata{"tenant": "ACME", "region": "eu"}
	c.Envelope.Metadata = notification.Metadata{"tenant": "acme corp", "region": "", "of": "acme"}
	a.FirstParkedAt, b.FirstParkedAt = time.Now(), time.Now().Add(-2*time.Hour)
	o.Park(t, a, b, c, d)
	o.ParkFor(t, "web", e)

	for name, check := range map[string]struct {
		filter store.ParkedFilter
		want   []int64
	}{
		"nothing":              {store.ParkedFilter{}, []int64{1, 2, 3, 4, 5}},
		"sink":                 {store.ParkedFilter{Sink: "web"}, []int64{5}},
		"id":                   {store.ParkedFilter{ID: c.Envelope.ID}, []int64{3}},
		"type":                 {store.ParkedFilter{Types: notification.TypeFilter{Names: []string{"order.paid"}}}, []int64{2}},
		"beginning":            {store.ParkedFilter{Types: notification.TypeFilter{Prefixes: []string{"order."}}}, []int64{1, 2, 4, 5}},
		"all types":            {store.ParkedFilter{Types: notification.AllTypes}, []int64{1, 2, 3, 4, 5}},
		"key":                  {store.ParkedFilter{Key: "k"}, []int64{1, 3, 5}},
		"states":               {store.ParkedFilter{States: []store.State{store.StateDead, store.StateBlocked}}, []int64{2, 3, 5}},
		"older":                {store.ParkedFilter{Sink: "mail", OlderThan: time.Hour}, []int64{2, 3, 4}},
		"newer":                {store.ParkedFilter{NewerThan: time.Hour}, []int64{1}},
		"both ages":            {store.ParkedFilter{OlderThan: time.Hour, NewerThan: 3 * time.Hour}, []int64{2}},
		"error":                {store.ParkedFilter{Error: "connection refused"}, []int64{1}},
		"error with wildcards": {store.ParkedFilter{Error: "% _"}, []int64{2}},
		"metadata":             {store.ParkedFilter{Metadata: map[string]string{"tenant": "acme"}}, []int64{1}},
		"metadata in capitals": {store.ParkedFilter{Metadata: map[string]string{"tenant": "ACME"}}, []int64{2}},
		"all of the metadata":  {store.ParkedFilter{Metadata: map[string]string{"tenant": "acme", "region": "us"}}, []int64{}},
		"more metadata":        {store.ParkedFilter{Metadata: map[string]string{"region": "eu"}}, []int64{1, 2}},
		"empty metadata":       {store.ParkedFilter{Metadata: map[string]string{"region": ""}}, []int64{3}},
		"odd metadata":         {store.ParkedFilter{Metadata: map[string]string{odd: odd}}, []int64{1}},
		"wildcards in it":      {store.ParkedFilter{Metadata: map[string]string{"*": "acme"}}, []int64{}},
		"places": {store.ParkedFilter{Places: []store.ParkedPlace{
			{Sink: "mail", Ref: store.RefOf(&a.Envelope)}, {Sink: "web", Ref: store.RefOf(&e.Envelope)}, {Sink: "mail", Ref: store.RefOf(&e.Envelope)}}}, []int64{1, 5}},
		"all at once": {store.ParkedFilter{Sink: "mail", Key: "k", States: []store.State{store.StateRetrying}, Error: "tcp", NewerThan: time.Hour, Metadata: map[string]string{"tenant": "acme", "region": "eu"}}, []int64{1}},
		"too much":    {store.ParkedFilter{Sink: "mail", Key: "k", States: []store.State{store.StateDead}}, []int64{}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, check.want, find(t, o, check.filter)) })
	}
}

func parkedPages(t *testing.T, o *kit.Outbox) {
	want := kit.Dead(2, "k")
	want.Attempt, want.LastError = 3, "boom"
	o.Park(t, kit.Dead(1, ""), want, kit.Dead(10, ""))
	o.ParkFor(t, "web", kit.Dead(1, ""), kit.Dead(3, ""))
	var place store.ParkedPlace
	var got []store.ParkedDelivery
	for {
		page, err := o.FindParked(t.Context(), store.ParkedFilter{}, place, 2)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		got = append(got, page...)
		place = page[len(page)-1].Place()
	}
	require.Len(t, got, 5)
	for i, of := range []string{"mail", "mail", "mail", "web", "web"} {
		require.Equal(t, of, got[i].Sink)
	}
	kit.RequireSame(t, want.Envelope, got[1].Envelope)
	require.Equal(t, 3, got[1].Attempt)
	require.Equal(t, "boom", got[1].LastError)
	kit.RequireTime(t, kit.Moment, got[1].FirstParkedAt)
	require.WithinDuration(t, time.Now(), got[1].UpdatedAt, time.Minute)
}

func unknownFilterSink(t *testing.T, o *kit.Outbox) {
	o.Hold(t, "mail")
	_, _, err := o.CountParked(t.Context(), store.ParkedFilter{Sink: "mial"})
	require.ErrorIs(t, err, store.ErrUnknownSink)
	require.ErrorContains(t, err, "the outbox knows mail")
	counts, _, err := o.CountParked(t.Context(), store.ParkedFilter{Sink: "mail"})
	require.NoError(t, err)
	require.Empty(t, counts)
}

func requeued(t *testing.T, o *kit.Outbox) {
	was := kit.Dead(2, "k")
	was.Attempt, was.LastError, was.Attempts = 12, "boom", kit.Attempts()
	o.Park(t, was, kit.Retrying(3, "l", kit.Later()), kit.Dead(4, "m"))
	require.Equal(t, 2, o.RequeueAll(t, store.ParkedFilter{Sink: "mail", Types: notification.AllTypes, States: []store.State{store.StateDead}}, 100))
	due, _ := o.DueAt(t, soon())
	require.Equal(t, []int64{2, 4}, kit.Offsets(due))
	require.Equal(t, store.StateRetrying, due[0].State)
	require.Zero(t, due[0].Attempt)
	require.Equal(t, "boom", due[0].LastError)
	require.Equal(t, kit.Attempts(), due[0].Attempts, "so that it is seen that it was requeued")
	require.WithinDuration(t, time.Now(), due[0].DueAt, time.Minute)
	kit.RequireSame(t, was.Envelope, due[0].Envelope)
}

func requeueable(t *testing.T, o *kit.Outbox) {
	o.Park(t, kit.Retrying(1, "k", kit.Later()), kit.Blocked(2, "k"), kit.Scheduled(3, "", kit.Later()), kit.Dead(4, ""))
	require.Equal(t, 2, o.RequeueAll(t, store.ParkedFilter{Sink: "mail"}, 100))
	got, _ := o.DueOffsets(t, asOfSoon)
	require.Equal(t, []int64{1, 4}, got)
	require.Zero(t, requeueMore(t, o, store.ParkedFilter{Sink: "mail", States: []store.State{store.StateBlocked, store.StateScheduled}}))
}

// requeueMore runs one more batch of the action that requeue began.
func requeueMore(t *testing.T, o *kit.Outbox, f store.ParkedFilter) int {
	t.Helper()
	result, err := o.Requeue(t.Context(), store.ParkedBatch{Action: "requeue", Filter: f, Limit: 100})
	require.NoError(t, err)
	return result.Changed
}

func requeuedKey(t *testing.T, o *kit.Outbox) {
	o.Park(t, kit.Dead(1, "k"), kit.Dead(2, "k"), kit.Dead(3, "l"), kit.Dead(4, ""), kit.Dead(5, ""), kit.Dead(6, "k"),
		kit.Retrying(7, "m", kit.Later()), kit.Dead(8, "m"), kit.Dead(9, "n"), kit.Retrying(10, "n", kit.Later()))
	require.Equal(t, 8, o.RequeueAll(t, store.ParkedFilter{Sink: "mail", States: []store.State{store.StateDead}}, 2))
	got, _ := o.DueOffsets(t, asOfSoon)
	require.Equal(t, []int64{1, 3, 4, 5, 9}, got)
	behind := blockedOf(t, o, "k")
	require.Equal(t, []int64{2, 6}, kit.Offsets(behind))
	require.Zero(t, behind[0].Attempt)
	require.True(t, behind[0].DueAt.IsZero())
	behind = blockedOf(t, o, "m")
	require.Equal(t, []int64{8}, kit.Offsets(behind), "blocked behind the retrying one")

	require.Equal(t, 7, requeueMore(t, o, store.ParkedFilter{Sink: "mail", States: []store.State{store.StateRetrying}}))
	got, _ = o.DueOffsets(t, asOfSoon)
	require.Equal(t, []int64{1, 3, 4, 5, 7, 9, 10}, got, "retrying deliveries keep their state")
}

func discarded(t *testing.T, o *kit.Outbox) {
	o.Park(t, kit.Dead(1, "k"), kit.Blocked(2, "k"), kit.Dead(3, ""), kit.Dead(4, ""), kit.Dead(5, ""))
	o.ParkFor(t, "web", kit.Dead(1, "k"))
	o.BeginAction(t, "a")
	b := store.ParkedBatch{Action: "a", Filter: store.ParkedFilter{Sink: "mail", States: []store.State{store.StateDead}}, Limit: 3}
	result, err := o.Discard(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, 3, result.Changed)
	require.False(t, result.Done)
	require.EqualValues(t, 4, result.Last.Offset)
	require.Equal(t, []int64{2, 5}, find(t, o, store.ParkedFilter{Sink: "mail"}))
	b.After = result.Last
	result, err = o.Discard(t.Context(), b)
	require.NoError(t, err)
	require.True(t, result.Done)
	require.Equal(t, []int64{2}, find(t, o, store.ParkedFilter{Sink: "mail"}))
	require.Equal(t, []int64{1}, find(t, o, store.ParkedFilter{Sink: "web"}))
}

// discard discards the next deliveries of a sink.
func discard(t *testing.T, o *kit.Outbox, action, sink string, limit int) store.ParkedBatchResult {
	t.Helper()
	result, err := o.Discard(t.Context(), store.ParkedBatch{Action: action, Filter: store.ParkedFilter{Sink: sink}, Limit: limit})
	require.NoError(t, err)
	return result
}

func heads(t *testing.T, o *kit.Outbox) {
	o.Park(t, kit.Dead(1, "k"), kit.Dead(2, "k"), kit.Blocked(3, "k"), kit.Dead(4, ""), kit.Retrying(5, "l", kit.Moment), kit.Dead(6, "l"),
		kit.Scheduled(7, "m", kit.Moment), kit.Dead(8, "m"))
	require.Equal(t, []int64{1, 8}, find(t, o, store.ParkedFilter{Heads: true}))
	require.Equal(t, []int64{1}, find(t, o, store.ParkedFilter{Heads: true, Key: "k"}))
}

// revision returns the revision of a sink's first lane.
func revision(t *testing.T, o *kit.Outbox, sink string) int64 {
	t.Helper()
	for _, l := range o.Members(t).Lanes {
		if l.Lane.Sink == sink {
			return l.Revision
		}
	}
	return -1
}

func revisions(t *testing.T, o *kit.Outbox) {
	o.Park(t, kit.Dead(1, "k"))
	o.Hold(t, "web")
	require.Zero(t, revision(t, o, "mail"))
	require.Zero(t, o.RequeueAll(t, store.ParkedFilter{Sink: "mail", Key: "other"}, 10))
	require.Zero(t, revision(t, o, "mail"), "nothing was changed")
	require.Equal(t, 1, requeueMore(t, o, store.ParkedFilter{Sink: "mail"}))
	require.EqualValues(t, 1, revision(t, o, "mail"))
	require.Zero(t, revision(t, o, "web"))
}

func revisionOfSinks(t *testing.T, o *kit.Outbox) {
	sinks := []string{"mail", "web"}
	for _, sink := range sinks {
		o.ParkFor(t, sink, kit.Dead(1, ""), kit.Dead(2, ""))
	}
	o.BeginAction(t, "a")
	begun := time.Now()
	for _, sink := range sinks {
		for range 2 {
			require.Equal(t, 1, discard(t, o, "a", sink, 1).Changed)
		}
		require.Positive(t, revision(t, o, sink), "the first batch is announced at once")
	}
	require.NoError(t, o.End(t.Context(), "a"))
	if time.Since(begun) < time.Second {
		require.EqualValues(t, 2, revision(t, o, "mail"), "the end announces the rest")
		require.EqualValues(t, 2, revision(t, o, "web"))
	}
}

// revisionOfMany tests that a large action makes forwarders compare their keys with the table only a
// few times, not for each batch.
func revisionOfMany(t *testing.T, o *kit.Outbox) {
	const batches = 50
	for i := range batches {
		o.Park(t, kit.Dead(int64(i+1), ""))
	}
	revision := func() int64 { return revision(t, o, "mail") }
	o.BeginAction(t, "a")
	begun := time.Now()
	for i := range batches {
		discard(t, o, "a", "mail", 1)
		if i == 0 {
			require.EqualValues(t, 1, revision(), "the first batch is announced at once")
		}
	}
	require.LessOrEqual(t, revision(), 1+int64(time.Since(begun)/time.Second))
	require.NoError(t, o.End(t.Context(), "a"))
	if time.Since(begun) < time.Second {
		require.EqualValues(t, 2, revision(), "the end announces the rest")
	}

	o.BeginAction(t, "b")
	before := revision()
	require.NoError(t, o.End(t.Context(), "b"))
	require.Equal(t, before, revision(), "nothing was changed")
}

func actions(t *testing.T, o *kit.Outbox) {
	o.Park(t, kit.Dead(1, "k"), kit.Dead(2, "k"), kit.Dead(3, "k"))
	o.BeginAction(t, "first")
	discard(t, o, "first", "mail", 1)
	discard(t, o, "first", "mail", 1)
	o.BeginAction(t, "second")
	o.Exec(t, `UPDATE outbox_actions SET at = {2026-01-02T03:04:05.678901Z} WHERE id = 'first'`)
	require.NoError(t, o.End(t.Context(), "second"))
	require.ErrorIs(t, o.End(t.Context(), "third"), store.ErrUnknownAction)

	got, err := o.Actions(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, "second", got[0].ID)
	require.Zero(t, got[0].Count)
	require.WithinDuration(t, time.Now(), got[0].EndedAt, time.Minute)
	require.JSONEq(t, `{"sink": "mail"}`, string(got[1].Filter))
	require.WithinDuration(t, time.Now(), got[1].UpdatedAt, time.Minute)
	got[1].Filter, got[1].UpdatedAt = nil, time.Time{}
	require.Equal(t, store.Action{
		ID: "first", At: time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC), Who: "ada", Name: "test", Count: 2, State: store.ActionRunning,
	}, got[1])
	for _, c := range []struct {
		limit int
		names []string
		want  int
	}{{1, nil, 1}, {10, []string{"test", "pause"}, 2}, {1, []string{"test"}, 1}, {10, []string{"pause"}, 0}} {
		got, err = o.Actions(t.Context(), c.limit, c.names...)
		require.NoError(t, err)
		require.Len(t, got, c.want, "%+v", c)
	}
}

func noAction(t *testing.T, o *kit.Outbox) {
	o.Park(t, kit.Dead(1, "k"))
	before := o.DumpAll(t)
	_, err := o.Discard(t.Context(), store.ParkedBatch{Action: "none", Filter: store.ParkedFilter{Sink: "mail"}, Limit: 10})
	require.ErrorIs(t, err, store.ErrUnknownAction)
	require.Equal(t, before, o.DumpAll(t))
}

func actionRequest(t *testing.T, o *kit.Outbox) {
	want := store.Action{
		ID: "a", Who: "ada", Address: "10.0.0.7", Reason: "it's <late>", Name: "discard", Filter: json.RawMessage(`{}`), Request: "d1", Planned: 7, State: store.ActionRunning,
	}
	require.NoError(t, o.Begin(t.Context(), want))
	got := o.ActionOf(t, "a")
	require.WithinDuration(t, time.Now(), got.At, time.Minute)
	got.At, got.UpdatedAt = time.Time{}, time.Time{}
	require.Equal(t, want, got)
}

func actionOnce(t *testing.T, o *kit.Outbox) {
	o.BeginAction(t, "a")
	err := o.Begin(t.Context(), store.Action{ID: "a", Who: "eve", Name: "other", Filter: json.RawMessage(`{}`)})
	require.ErrorIs(t, err, store.ErrActionBegun)
	require.Equal(t, "ada", o.ActionOf(t, "a").Who)
}

func cancelledAction(t *testing.T, o *kit.Outbox) {
	o.Park(t, kit.Dead(1, "k"), kit.Dead(2, "k"))
	o.BeginAction(t, "a")
	b := store.ParkedBatch{Action: "a", Filter: store.ParkedFilter{Sink: "mail"}, Limit: 1}
	discard(t, o, "a", "mail", 1)
	require.NoError(t, o.CancelAction(t.Context(), "a", "eve"))
	for name, batch := range map[string]func() error{
		"discard": func() error { _, err := o.Discard(t.Context(), b); return err },
		"requeue": func() error { _, err := o.Requeue(t.Context(), b); return err },
		"pause":   func() error { _, err := o.Pause(t.Context(), "a", "mail", true); return err },
		"reroute": func() error {
			_, err := o.Reroute(t.Context(), store.RerouteBatch{Action: "a", Limit: 1})
			return err
		},
		"replay": func() error {
			q := store.ReplayQuery{Sink: "mail", Types: []notification.TypeFilter{notification.AllTypes}, UpTo: 10}
			_, err := o.Replay(t.Context(), store.ReplayBatch{ReplayQuery: q, Action: "a", Limit: 1})
			return err
		},
	} {
		require.ErrorIs(t, batch(), store.ErrActionCancelled, name)
	}
	require.Equal(t, []int64{2}, find(t, o, store.ParkedFilter{}))
	got := o.ActionOf(t, "a")
	require.Equal(t, store.ActionCancelled, got.State)
	require.Equal(t, "eve", got.CancelledBy)
	require.WithinDuration(t, time.Now(), got.CancelledAt, time.Minute)
	require.EqualValues(t, 1, got.Count)
	require.True(t, got.EndedAt.IsZero())

	require.ErrorIs(t, o.CancelAction(t.Context(), "a", "mallory"), store.ErrActionEnded)
	require.ErrorIs(t, o.CancelAction(t.Context(), "none", "eve"), store.ErrUnknownAction)
	o.BeginAction(t, "b")
	require.NoError(t, o.End(t.Context(), "b"))
	require.ErrorIs(t, o.CancelAction(t.Context(), "b", "eve"), store.ErrActionEnded)
	require.Equal(t, store.ActionDone, o.ActionOf(t, "b").State)
}

func interruptedAction(t *testing.T, o *kit.Outbox) {
	o.Park(t, kit.Dead(1, "k"))
	o.BeginAction(t, "a")
	o.Exec(t, `UPDATE outbox_actions SET updated_at = {2026-01-02T03:04:05Z}`)
	require.Equal(t, store.ActionInterrupted, o.ActionOf(t, "a").State)
	discard(t, o, "a", "mail", 1)
	require.Equal(t, store.ActionRunning, o.ActionOf(t, "a").State, "it continues")
}

// soon is after the database's clock, so that what is due now is due.
func soon() time.Time { return time.Now().Add(time.Minute) }

func asOfSoon(q *store.DueQuery) { q.Now = soon() }

// find returns the offsets of the matching deliveries.
func find(t *testing.T, o *kit.Outbox, f store.ParkedFilter) []int64 {
	t.Helper()
	found, err := o.FindParked(t.Context(), f, store.ParkedPlace{}, 100)
	require.NoError(t, err)
	list := []int64{}
	for _, d := range found {
		list = append(list, d.Envelope.Offset)
	}
	counts, _, err := o.CountParked(t.Context(), f)
	require.NoError(t, err)
	total := 0
	for _, c := range counts {
		total += int(c.Count)
	}
	require.Len(t, list, total, "the count is the number of those found")
	return list
}
