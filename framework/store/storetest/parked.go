package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

var parkedFacts = []fact{
	{"a parked delivery comes back complete", completeParked},
	{"parking again replaces all but the time of the first parking", parkAgain},
	{"deliveries come in the order in which they fell due", dueOrder},
	{"a delivery is due at its time, not a moment earlier", dueBoundary},
	{"a limit leaves the rest for the next call", dueLimit},
	{"next is the time at which the next delivery falls due", dueNext},
	{"blocked and dead deliveries are never due", neverDue},
	{"delivered and dead deliveries are due for their hooks", hooksDue},
	{"the result of a repeated hook does not undo a person's action", hooksCalledAgain},
	{"a scheduled delivery waits for the earlier ones of its key", scheduledBehindKey},
	{"a dead delivery holds its key back only with halt", haltedKey},
	{"scheduled deliveries do not hold each other back", scheduledTogether},
	{"the deliveries that hold back a key come in log order", followersOrder},
	{"the deliveries that hold back several keys come by key, in the order of the request", followersOfKeys},
	{"large followers are returned for fewer keys, at least for one", largeFollowers},
	{"held keys come in pages, each key once", heldKeys},
	{"an unparked delivery is removed for its sink only", unpark},
	{"starting the log again leaves the parked deliveries of the old log", parkedOfTwoLogs},
	{"a blocked delivery does not replace a parked one", parkedAndReadAgain},
	{"a lane of a sink has only its own deliveries", parkedLanes},
	{"random histories agree with a model", modelOfParked},
}

// parked returns a delivery of a new envelope.
func parked(offset int64, key string, state store.State, dueAt time.Time) store.Parked {
	e := envelope("order.placed", key)
	e.Offset = offset
	return store.Parked{Envelope: e, State: state, DueAt: dueAt, FirstParkedAt: moment}
}

func retrying(offset int64, key string, dueAt time.Time) store.Parked {
	return parked(offset, key, store.StateRetrying, dueAt)
}

func scheduled(offset int64, key string, dueAt time.Time) store.Parked {
	return parked(offset, key, store.StateScheduled, dueAt)
}

func blocked(offset int64, key string) store.Parked {
	return parked(offset, key, store.StateBlocked, time.Time{})
}

func dead(offset int64, key string) store.Parked {
	return parked(offset, key, store.StateDead, time.Time{})
}

func after(d time.Duration) time.Time { return moment.Add(d) }

// park parks deliveries of the sink "mail" and returns its lease.
func (o *outbox) park(t *testing.T, deliveries ...store.Parked) store.Lease {
	t.Helper()
	lease := o.acquire(t, "mail")
	o.checkpoint(t, lease, func(c *store.Checkpoint) { c.Park = deliveries })
	return lease
}

// due returns the offsets that are due for the sink "mail" at moment.
func (o *outbox) due(t *testing.T, change func(q *store.DueQuery)) ([]int64, time.Time) {
	t.Helper()
	q := store.DueQuery{Lane: lane("mail"), Now: moment, Limit: 100}
	if change != nil {
		change(&q)
	}
	due, next, err := o.Due(t.Context(), q)
	require.NoError(t, err)
	return offsets(due), next
}

// soon is after the database's clock, so that what is due now is due.
func soon() time.Time { return time.Now().Add(time.Minute) }

// later is a time that is not due soon.
func later() time.Time { return time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond) }

func asOfSoon(q *store.DueQuery) { q.Now = soon() }

// refs returns the references of deliveries.
func refs(deliveries ...store.Parked) []store.Ref {
	list := make([]store.Ref, len(deliveries))
	for i := range deliveries {
		list[i] = store.RefOf(&deliveries[i].Envelope)
	}
	return list
}

func offsets(deliveries []store.Parked) []int64 {
	list := []int64{}
	for i := range deliveries {
		list = append(list, deliveries[i].Envelope.Offset)
	}
	return list
}

func requireTime(t *testing.T, want, got time.Time) {
	t.Helper()
	require.True(t, want.Equal(got), "want %s, got %s", want, got)
}

func completeParked(t *testing.T, o *outbox) {
	want := retrying(7, "k", moment.Add(-time.Microsecond))
	want.Envelope.Version = 3
	want.Envelope.Slot = 0
	want.Envelope.DeliverAt = moment.Add(time.Microsecond)
	want.Envelope.Metadata = notification.Metadata{"tenant": "ü", "a": `"`}
	want.Envelope.Payload = []byte(`{ "text": "€ 😀" }`)
	want.Attempt = 5
	want.LastError = "dial tcp: 'refused'\n100%"
	bare := retrying(8, "", moment)
	bare.Envelope.Metadata = nil
	o.park(t, want, bare)

	due, next, err := o.Due(t.Context(), store.DueQuery{Lane: lane("mail"), Now: moment, Limit: 10})
	require.NoError(t, err)
	require.Len(t, due, 2)
	require.True(t, next.IsZero())
	got := due[0]
	requireSame(t, want.Envelope, got.Envelope)
	require.EqualValues(t, 7, got.Envelope.Offset)
	require.Equal(t, store.StateRetrying, got.State)
	require.Equal(t, 5, got.Attempt)
	requireTime(t, want.DueAt, got.DueAt)
	require.Equal(t, want.LastError, got.LastError)
	requireTime(t, moment, got.FirstParkedAt)
	requireSame(t, bare.Envelope, due[1].Envelope)
}

func parkAgain(t *testing.T, o *outbox) {
	first := retrying(7, "k", moment)
	first.Attempt, first.LastError = 1, "first"
	lease := o.park(t, first)
	second := first
	second.Attempt, second.LastError, second.DueAt, second.FirstParkedAt = 2, "second", after(-time.Hour), after(time.Hour)
	o.checkpoint(t, lease, func(c *store.Checkpoint) { c.Park = []store.Parked{second} })

	due, _, err := o.Due(t.Context(), store.DueQuery{Lane: lane("mail"), Now: moment, Limit: 10})
	require.NoError(t, err)
	require.Len(t, due, 1)
	require.Equal(t, 2, due[0].Attempt)
	require.Equal(t, "second", due[0].LastError)
	requireTime(t, after(-time.Hour), due[0].DueAt)
	requireTime(t, moment, due[0].FirstParkedAt)

	gone := second
	gone.State, gone.DueAt = store.StateDead, time.Time{}
	o.checkpoint(t, lease, func(c *store.Checkpoint) { c.Park = []store.Parked{gone} })
	got, next := o.due(t, nil)
	require.Empty(t, got)
	require.True(t, next.IsZero())
}

func dueOrder(t *testing.T, o *outbox) {
	o.park(t,
		retrying(1, "a", after(-1*time.Second)),
		scheduled(2, "b", after(-3*time.Second)),
		retrying(3, "c", after(-3*time.Second)),
		retrying(4, "", after(-2*time.Second-time.Microsecond)),
		scheduled(5, "", after(-2*time.Second)),
	)
	got, _ := o.due(t, nil)
	require.Equal(t, []int64{2, 3, 4, 5, 1}, got)
}

func dueBoundary(t *testing.T, o *outbox) {
	o.park(t, retrying(1, "", moment), retrying(2, "", after(time.Microsecond)))
	got, next := o.due(t, nil)
	require.Equal(t, []int64{1}, got)
	requireTime(t, after(time.Microsecond), next)
	got, next = o.due(t, func(q *store.DueQuery) { q.Now = after(-time.Microsecond) })
	require.Empty(t, got)
	requireTime(t, moment, next)
	got, _ = o.due(t, func(q *store.DueQuery) { q.Now = after(time.Microsecond).In(time.FixedZone("west", -7*3600)) })
	require.Equal(t, []int64{1, 2}, got, "whatever the zone of Now")
}

func dueLimit(t *testing.T, o *outbox) {
	o.park(t, retrying(1, "", after(-3)), retrying(2, "", after(-2*time.Second)), retrying(3, "", after(-3*time.Second)))
	for limit, want := range map[int][]int64{1: {3}, 2: {3, 2}, 3: {3, 2, 1}, 4: {3, 2, 1}} {
		got, _ := o.due(t, func(q *store.DueQuery) { q.Limit = limit })
		require.Equal(t, want, got)
	}
}

func dueNext(t *testing.T, o *outbox) {
	got, next := o.due(t, nil)
	require.Empty(t, got)
	require.True(t, next.IsZero())

	o.park(t,
		retrying(1, "", after(-time.Hour)),
		scheduled(2, "", after(3*time.Hour)),
		retrying(3, "", after(2*time.Hour)),
		blocked(4, "k"), dead(5, ""),
	)
	got, next = o.due(t, nil)
	require.Equal(t, []int64{1}, got)
	requireTime(t, after(2*time.Hour), next)
	_, next = o.due(t, func(q *store.DueQuery) { q.Now = after(2 * time.Hour) })
	requireTime(t, after(3*time.Hour), next)
	_, next = o.due(t, func(q *store.DueQuery) { q.Now = after(3 * time.Hour) })
	require.True(t, next.IsZero())
}

func neverDue(t *testing.T, o *outbox) {
	b, d := blocked(1, "k"), dead(2, "")
	b.DueAt = after(-time.Hour) // remained from an earlier state
	o.park(t, b, d)
	got, next := o.due(t, nil)
	require.Empty(t, got)
	require.True(t, next.IsZero())
}

// hooksDue is about calling hooks again for delivered and dead deliveries.
func hooksDue(t *testing.T, o *outbox) {
	delivered, d, late := parked(1, "k", store.StateSettling, moment), dead(2, "k"), dead(4, "")
	delivered.Receipt, delivered.HookError, delivered.HookFailures = "202", "deadlock", 3
	d.DueAt, d.HookError, d.HookFailures = moment, "deadlock", 1
	late.DueAt = after(time.Hour)
	o.park(t, delivered, d, scheduled(3, "k", moment), late)
	got, next, err := o.Due(t.Context(), store.DueQuery{Lane: lane("mail"), Now: moment, Limit: 100})
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2, 3}, offsets(got), "delivered ones hold nothing back")
	requireTime(t, after(time.Hour), next)
	require.Equal(t, delivered.Receipt, got[0].Receipt)
	require.Equal(t, delivered.HookError, got[0].HookError)
	require.Equal(t, delivered.HookFailures, got[0].HookFailures)
	require.Empty(t, o.heldKeys(t, lane("mail"), false, 10))
}

// hooksCalledAgain is about a person who requeues one delivery and discards another before the
// results of their hooks are written.
func hooksCalledAgain(t *testing.T, o *outbox) {
	one, two, requeued, discarded := dead(1, ""), dead(2, ""), dead(3, ""), parked(4, "", store.StateSettling, moment)
	hooks := []*store.Parked{&one, &two, &requeued, &discarded}
	for _, p := range hooks {
		p.DueAt, p.HookError, p.HookFailures = moment, "deadlock", 1
	}
	changed := requeued
	changed.State, changed.HookError, changed.HookFailures = store.StateRetrying, "", 0
	lease := o.park(t, one, two, changed)
	one.DueAt, one.HookError, one.HookFailures = time.Time{}, "", 0
	two.DueAt, two.HookError, two.HookFailures = after(time.Hour), "again", 2
	o.checkpoint(t, lease, func(c *store.Checkpoint) { c.Hooked = []store.Parked{one, two, requeued, discarded} })
	got, next := o.due(t, nil)
	require.Equal(t, []int64{3}, got)
	requireTime(t, after(time.Hour), next)
	due, _, err := o.Due(t.Context(), store.DueQuery{Lane: lane("mail"), Now: after(2 * time.Hour), Limit: 100})
	require.NoError(t, err)
	require.Equal(t, []int64{3, 2}, offsets(due))
	require.Equal(t, store.StateRetrying, due[0].State)
	require.Empty(t, due[0].HookError)
	require.Equal(t, []any{"again", 2, two.LastError}, []any{due[1].HookError, due[1].HookFailures, due[1].LastError})
}

func scheduledBehindKey(t *testing.T, o *outbox) {
	deliveries := []store.Parked{
		retrying(1, "busy", after(time.Hour)),
		scheduled(2, "busy", moment),
		blocked(3, "waiting"),
		scheduled(4, "waiting", moment),
		scheduled(5, "free", moment),
		scheduled(6, "", moment),
		retrying(7, "", after(time.Hour)),
		scheduled(8, "later", moment),
		blocked(9, "later"), // published after it and already waiting
		retrying(10, "waiting", moment),
	}
	lease := o.park(t, deliveries...)
	got, next := o.due(t, nil)
	require.Equal(t, []int64{5, 6, 10}, got)
	requireTime(t, after(time.Hour), next)

	o.checkpoint(t, lease, func(c *store.Checkpoint) { c.Unpark = refs(deliveries[0], deliveries[2], deliveries[8], deliveries[9]) })
	got, _ = o.due(t, nil)
	require.Equal(t, []int64{2, 4, 5, 6, 8}, got)
}

func haltedKey(t *testing.T, o *outbox) {
	o.park(t, dead(1, "k"), scheduled(2, "k", moment), dead(3, ""), scheduled(4, "", moment))
	got, _ := o.due(t, nil)
	require.Equal(t, []int64{2, 4}, got)
	got, _ = o.due(t, func(q *store.DueQuery) { q.Halt = true })
	require.Equal(t, []int64{4}, got)
}

func scheduledTogether(t *testing.T, o *outbox) {
	o.park(t, scheduled(1, "k", moment), scheduled(2, "k", after(-time.Second)), scheduled(3, "k", after(time.Hour)))
	got, _ := o.due(t, nil)
	require.Equal(t, []int64{2, 1}, got)
	require.Empty(t, o.heldKeys(t, lane("mail"), true, 10))
}

// followers returns the deliveries that hold back keys of the sink "mail", from all pages.
func (o *outbox) followers(t require.TestingT, halt bool, limit int, keys ...string) []store.Parked {
	parked, answered, err := o.Followers(context.Background(), lane("mail"), keys, halt, limit)
	require.NoError(t, err)
	require.Equal(t, len(keys), answered)
	return parked
}

func followersOrder(t *testing.T, o *outbox) {
	o.park(t, retrying(1, "k", moment), blocked(9, "k"), blocked(3, "k"), blocked(5, "k"), blocked(4, "other"), dead(2, "k"), scheduled(6, "k", moment))
	for limit, want := range map[int][]int64{1: {1}, 2: {1, 3}, 3: {1, 3, 5}, 4: {1, 3, 5, 9}, 10: {1, 3, 5, 9}} {
		got := o.followers(t, false, limit, "k")
		require.Equal(t, want, offsets(got))
		require.Equal(t, store.StateRetrying, got[0].State)
		require.Equal(t, "k", got[0].Envelope.Key)
		require.True(t, moment.Equal(got[0].DueAt))
	}
	require.Equal(t, []int64{1, 2, 3, 5, 9}, offsets(o.followers(t, true, 10, "k")))
	require.Empty(t, o.followers(t, true, 10, "unknown"))
}

func followersOfKeys(t *testing.T, o *outbox) {
	require.Empty(t, o.followers(t, true, 10))
	o.park(t,
		blocked(1, "a"), retrying(2, "b", moment), blocked(3, "a"), dead(4, "b"), blocked(5, "a"), blocked(6, "b"),
		dead(7, "c"), scheduled(8, "d", moment), retrying(9, "", moment), blocked(10, "A"), blocked(11, "a "))
	o.checkpoint(t, o.acquire(t, "web"), func(c *store.Checkpoint) { c.Park = []store.Parked{blocked(12, "a")} })
	require.Equal(t, []int64{2, 6, 1, 3}, offsets(o.followers(t, false, 2, "b", "d", "a", "c", "unknown")))
	require.Equal(t, []int64{7, 1, 3, 5, 10, 2, 4, 6}, offsets(o.followers(t, true, 3, "c", "a", "unknown", "A", "b")))
	var many []string
	for i := range 500 {
		many = append(many, fmt.Sprint("k", i))
	}
	require.Equal(t, []int64{11}, offsets(o.followers(t, true, 3, append(many, "a ")...)))
}

func largeFollowers(t *testing.T, o *outbox) {
	large := []byte(`{"text":"` + strings.Repeat("x", 3<<20) + `"}`)
	lease := o.acquire(t, "mail")
	for i, key := range []string{"a", "b", "b", "c", "d", "e", "big", "big", "big", "big"} {
		o.checkpoint(t, lease, func(c *store.Checkpoint) {
			p := blocked(int64(i+1), key)
			p.Envelope.Payload = large
			c.Park = []store.Parked{p}
		})
	}
	keys := []string{"a", "none", "b", "c", "unknown", "d", "e", "none too", "big", "nothing"}
	var got []int64
	for asked := 0; len(keys) > 0; asked++ {
		parked, answered, err := o.Followers(t.Context(), lane("mail"), keys, false, 10)
		require.NoError(t, err)
		require.Positive(t, answered)
		if asked == 0 {
			require.Less(t, answered, len(keys), "not all at once")
		}
		for _, p := range parked {
			require.Contains(t, keys[:answered], p.Envelope.Key)
			require.Len(t, p.Envelope.Payload, len(large))
		}
		got, keys = append(got, offsets(parked)...), keys[answered:]
	}
	require.Subset(t, got, []int64{1, 2, 3, 4, 5, 6, 7})
	require.IsIncreasing(t, got)
	require.NotContains(t, got, int64(10), "also within one key")
}

// heldKeys returns the held keys of a lane, read in pages, and whether they have a head.
func (o *outbox) heldKeys(t require.TestingT, lane store.Lane, halt bool, page int) map[string]bool {
	held, after := make(map[string]bool), ""
	for {
		var keys []store.HeldKey
		require.NoError(t, o.repeat(func() (err error) {
			keys, err = o.HeldKeys(context.Background(), lane, halt, after, page)
			return err
		}))
		require.LessOrEqual(t, len(keys), page)
		for _, k := range keys {
			require.NotContains(t, held, k.Key, "listed twice")
			held[k.Key] = k.Head
			after = k.Key
		}
		if len(keys) < page {
			return held
		}
	}
}

func heldKeys(t *testing.T, o *outbox) {
	require.Empty(t, o.heldKeys(t, lane("mail"), true, 1))
	o.park(t,
		retrying(1, "a", moment), blocked(2, "a"), blocked(3, "Ä"), dead(4, "a"), blocked(5, "B"), retrying(6, "", moment),
		dead(7, "b"), scheduled(8, "c", moment), blocked(9, "a "), blocked(10, "%"))
	for page := 1; page < 8; page++ {
		require.Equal(t, map[string]bool{"a": true, "Ä": false, "B": false, "a ": false, "%": false}, o.heldKeys(t, lane("mail"), false, page))
		require.Equal(t, map[string]bool{"a": true, "Ä": false, "B": false, "b": true, "a ": false, "%": false}, o.heldKeys(t, lane("mail"), true, page))
		require.Empty(t, o.heldKeys(t, lane("web"), true, page))
	}
}

func unpark(t *testing.T, o *outbox) {
	first := retrying(1, "", moment)
	lease := o.park(t, first, retrying(2, "", moment))
	events := o.acquire(t, "events")
	o.checkpoint(t, events, func(c *store.Checkpoint) { c.Park = []store.Parked{first} })

	o.checkpoint(t, lease, func(c *store.Checkpoint) {
		c.Unpark = append(refs(first), store.Ref{Offset: 2, ID: "of another log"}, store.Ref{Offset: 99, ID: "x"})
	})
	got, _ := o.due(t, nil)
	require.Equal(t, []int64{2}, got)
	got, _ = o.due(t, func(q *store.DueQuery) { q.Lane = lane("events") })
	require.Equal(t, []int64{1}, got)
}

func parkedLanes(t *testing.T, o *outbox) {
	two := store.Lanes("mail", 2)
	lease, err := o.Acquire(t.Context(), two[0], "w1", time.Hour)
	require.NoError(t, err)
	first, second := retrying(1, "a", moment), retrying(2, "b", moment)
	first.Envelope.Slot, second.Envelope.Slot = two[0].Slots.Last, two[1].Slots.First
	o.checkpoint(t, lease, func(c *store.Checkpoint) { c.Park = []store.Parked{first, second} })

	for i, want := range []struct {
		offset int64
		key    string
	}{{1, "a"}, {2, "b"}} {
		got, _ := o.due(t, func(q *store.DueQuery) { q.Lane = two[i] })
		require.Equal(t, []int64{want.offset}, got)
		require.Equal(t, map[string]bool{want.key: true}, o.heldKeys(t, two[i], false, 10))
	}
	got, _ := o.due(t, func(q *store.DueQuery) { q.Lane = lane("events") })
	require.Empty(t, got)
}

// parkedOfTwoLogs parks two envelopes with the same offset: the log was truncated between them.
func parkedOfTwoLogs(t *testing.T, o *outbox) {
	before, now := retrying(1, "k", moment), retrying(1, "k", after(time.Hour))
	before.Attempt, now.Attempt = 7, 1
	lease := o.park(t, before)
	o.checkpoint(t, lease, func(c *store.Checkpoint) {
		c.Park = []store.Parked{now}
		c.Receipts = []store.Receipt{
			{Offset: 2, ID: "before", Receipt: "http 202", Attempt: 1, DeliveredAt: moment},
			{Offset: 2, ID: "now", Receipt: "http 202", Attempt: 1, DeliveredAt: moment},
		}
	})
	require.Equal(t, "n=2 \n", o.dump(t, `SELECT count(*) AS n FROM outbox_receipts`))
	due, next, err := o.Due(t.Context(), store.DueQuery{Lane: lane("mail"), Now: moment, Limit: 10})
	require.NoError(t, err)
	require.Len(t, due, 1)
	require.Equal(t, before.Envelope.ID, due[0].Envelope.ID)
	require.Equal(t, before.Envelope.Payload, due[0].Envelope.Payload)
	require.Equal(t, 7, due[0].Attempt)
	requireTime(t, now.DueAt, next)

	o.checkpoint(t, lease, func(c *store.Checkpoint) { c.Unpark = refs(before) })
	due, _, err = o.Due(t.Context(), store.DueQuery{Lane: lane("mail"), Now: now.DueAt, Limit: 10})
	require.NoError(t, err)
	require.Len(t, due, 1)
	require.Equal(t, now.Envelope.ID, due[0].Envelope.ID)
}

// parkedAndReadAgain is about the head of a key whose row is read from the log again: it must not wait
// for itself.
func parkedAndReadAgain(t *testing.T, o *outbox) {
	head := retrying(1, "k", moment)
	lease := o.park(t, head)
	again := head
	again.State, again.DueAt = store.StateBlocked, time.Time{}
	o.checkpoint(t, lease, func(c *store.Checkpoint) { c.Park = []store.Parked{again, blocked(2, "k")} })
	due, _ := o.due(t, nil)
	require.Equal(t, []int64{1}, due)
	require.Equal(t, map[string]bool{"k": true}, o.heldKeys(t, lane("mail"), false, 10))
	require.Equal(t, []int64{1, 2}, offsets(o.followers(t, false, 10, "k")))
}
