package deliveries

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

var parkedFacts = []kit.Fact{
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
	{"a quiet delivery waits for its time and holds back its key", quietKey},
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

func completeParked(t *testing.T, o *kit.Outbox) {
	want := kit.Retrying(7, "k", kit.Moment.Add(-time.Microsecond))
	want.Envelope.Version = 3
	want.Envelope.Slot = 0
	want.Envelope.DeliverAt = kit.Moment.Add(time.Microsecond)
	want.Envelope.Metadata = notification.Metadata{"tenant": "ü", "a": `"`}
	want.Envelope.Payload = []byte(`{ "text": "€ 😀" }`)
	want.Attempt = 5
	want.LastError = "dial tcp: 'refused'\n100%"
	want.Attempts = kit.Attempts()
	bare := kit.Retrying(8, "", kit.Moment)
	bare.Envelope.Metadata = nil
	o.Park(t, want, bare)

	due, next := o.DueAt(t, kit.Moment)
	require.Len(t, due, 2)
	require.True(t, next.IsZero())
	got := due[0]
	kit.RequireSame(t, want.Envelope, got.Envelope)
	require.EqualValues(t, 7, got.Envelope.Offset)
	require.Equal(t, store.StateRetrying, got.State)
	require.Equal(t, 5, got.Attempt)
	kit.RequireTime(t, want.DueAt, got.DueAt)
	require.Equal(t, want.LastError, got.LastError)
	require.Equal(t, kit.Attempts(), got.Attempts)
	require.Nil(t, due[1].Attempts)
	kit.RequireTime(t, kit.Moment, got.FirstParkedAt)
	kit.RequireSame(t, bare.Envelope, due[1].Envelope)
}

func parkAgain(t *testing.T, o *kit.Outbox) {
	first := kit.Retrying(7, "k", kit.Moment)
	first.Attempt, first.LastError = 1, "first"
	lease := o.Park(t, first)
	second := first
	second.Attempts = kit.Attempts()[:2]
	second.Attempt, second.LastError, second.DueAt, second.FirstParkedAt = 2, "second", kit.After(-time.Hour), kit.After(time.Hour)
	o.Write(t, lease, func(c *store.Checkpoint) { c.Park = []store.Parked{second} })

	due, _ := o.DueAt(t, kit.Moment)
	require.Len(t, due, 1)
	require.Equal(t, 2, due[0].Attempt)
	require.Equal(t, "second", due[0].LastError)
	require.Equal(t, second.Attempts, due[0].Attempts)
	kit.RequireTime(t, kit.After(-time.Hour), due[0].DueAt)
	kit.RequireTime(t, kit.Moment, due[0].FirstParkedAt)

	gone := second
	gone.State, gone.DueAt = store.StateDead, time.Time{}
	o.Write(t, lease, func(c *store.Checkpoint) { c.Park = []store.Parked{gone} })
	got, next := o.DueOffsets(t, nil)
	require.Empty(t, got)
	require.True(t, next.IsZero())
}

func dueOrder(t *testing.T, o *kit.Outbox) {
	o.Park(t,
		kit.Retrying(1, "a", kit.After(-1*time.Second)),
		kit.Scheduled(2, "b", kit.After(-3*time.Second)),
		kit.Retrying(3, "c", kit.After(-3*time.Second)),
		kit.Retrying(4, "", kit.After(-2*time.Second-time.Microsecond)),
		kit.Scheduled(5, "", kit.After(-2*time.Second)),
	)
	got, _ := o.DueOffsets(t, nil)
	require.Equal(t, []int64{2, 3, 4, 5, 1}, got)
}

func dueBoundary(t *testing.T, o *kit.Outbox) {
	o.Park(t, kit.Retrying(1, "", kit.Moment), kit.Retrying(2, "", kit.After(time.Microsecond)))
	got, next := o.DueOffsets(t, nil)
	require.Equal(t, []int64{1}, got)
	kit.RequireTime(t, kit.After(time.Microsecond), next)
	got, next = o.DueOffsets(t, func(q *store.DueQuery) { q.Now = kit.After(-time.Microsecond) })
	require.Empty(t, got)
	kit.RequireTime(t, kit.Moment, next)
	got, _ = o.DueOffsets(t, func(q *store.DueQuery) { q.Now = kit.After(time.Microsecond).In(time.FixedZone("west", -7*3600)) })
	require.Equal(t, []int64{1, 2}, got, "whatever the zone of Now")
}

func dueLimit(t *testing.T, o *kit.Outbox) {
	o.Park(t, kit.Retrying(1, "", kit.After(-time.Second)), kit.Retrying(2, "", kit.After(-2*time.Second)), kit.Retrying(3, "", kit.After(-3*time.Second)))
	for limit, want := range map[int][]int64{1: {3}, 2: {3, 2}, 3: {3, 2, 1}, 4: {3, 2, 1}} {
		got, next := o.DueOffsets(t, func(q *store.DueQuery) { q.Limit = limit })
		require.Equal(t, want, got)
		kit.RequireTime(t, map[int]time.Time{1: kit.After(-2 * time.Second), 2: kit.After(-time.Second)}[limit], next)
	}
}

func dueNext(t *testing.T, o *kit.Outbox) {
	got, next := o.DueOffsets(t, nil)
	require.Empty(t, got)
	require.True(t, next.IsZero())

	o.Park(t,
		kit.Retrying(1, "", kit.After(-time.Hour)),
		kit.Scheduled(2, "", kit.After(3*time.Hour)),
		kit.Retrying(3, "", kit.After(2*time.Hour)),
		kit.Blocked(4, "k"), kit.Dead(5, ""),
	)
	got, next = o.DueOffsets(t, nil)
	require.Equal(t, []int64{1}, got)
	kit.RequireTime(t, kit.After(2*time.Hour), next)
	_, next = o.DueOffsets(t, func(q *store.DueQuery) { q.Now = kit.After(2 * time.Hour) })
	kit.RequireTime(t, kit.After(3*time.Hour), next)
	_, next = o.DueOffsets(t, func(q *store.DueQuery) { q.Now = kit.After(3 * time.Hour) })
	require.True(t, next.IsZero())
}

func neverDue(t *testing.T, o *kit.Outbox) {
	b, d := kit.Blocked(1, "k"), kit.Dead(2, "")
	b.DueAt = kit.After(-time.Hour) // remained from an earlier state
	o.Park(t, b, d)
	got, next := o.DueOffsets(t, nil)
	require.Empty(t, got)
	require.True(t, next.IsZero())
}

// hooksDue is about calling hooks again for delivered and dead deliveries.
func hooksDue(t *testing.T, o *kit.Outbox) {
	delivered, d, late := kit.Parked(1, "k", store.StateSettling, kit.Moment), kit.Dead(2, "k"), kit.Dead(4, "")
	delivered.Receipt, delivered.HookError, delivered.HookFailures = "202", "deadlock", 3
	d.DueAt, d.HookError, d.HookFailures = kit.Moment, "deadlock", 1
	late.DueAt = kit.After(time.Hour)
	o.Park(t, delivered, d, kit.Scheduled(3, "k", kit.Moment), late)
	got, next := o.DueAt(t, kit.Moment)
	require.Equal(t, []int64{1, 2, 3}, kit.Offsets(got), "delivered ones hold nothing back")
	kit.RequireTime(t, kit.After(time.Hour), next)
	require.Equal(t, delivered.Receipt, got[0].Receipt)
	require.Equal(t, delivered.HookError, got[0].HookError)
	require.Equal(t, delivered.HookFailures, got[0].HookFailures)
	require.Empty(t, keysHeld(t, o, kit.Lane("mail"), false, 10))
}

// hooksCalledAgain is about a person who requeues one delivery and discards another before the
// results of their hooks are written.
func hooksCalledAgain(t *testing.T, o *kit.Outbox) {
	one, two, requeued, discarded := kit.Dead(1, ""), kit.Dead(2, ""), kit.Dead(3, ""), kit.Parked(4, "", store.StateSettling, kit.Moment)
	hooks := []*store.Parked{&one, &two, &requeued, &discarded}
	for _, p := range hooks {
		p.DueAt, p.HookError, p.HookFailures = kit.Moment, "deadlock", 1
	}
	changed := requeued
	changed.State, changed.HookError, changed.HookFailures = store.StateRetrying, "", 0
	lease := o.Park(t, one, two, changed)
	one.DueAt, one.HookError, one.HookFailures = time.Time{}, "", 0
	two.DueAt, two.HookError, two.HookFailures = kit.After(time.Hour), "again", 2
	o.Write(t, lease, func(c *store.Checkpoint) { c.Hooked = []store.Parked{one, two, requeued, discarded} })
	got, next := o.DueOffsets(t, nil)
	require.Equal(t, []int64{3}, got)
	kit.RequireTime(t, kit.After(time.Hour), next)
	due, _ := o.DueAt(t, kit.After(2*time.Hour))
	require.Equal(t, []int64{3, 2}, kit.Offsets(due))
	require.Equal(t, store.StateRetrying, due[0].State)
	require.Empty(t, due[0].HookError)
	require.Equal(t, []any{"again", 2, two.LastError}, []any{due[1].HookError, due[1].HookFailures, due[1].LastError})
}

func scheduledBehindKey(t *testing.T, o *kit.Outbox) {
	deliveries := []store.Parked{
		kit.Retrying(1, "busy", kit.After(time.Hour)),
		kit.Scheduled(2, "busy", kit.Moment),
		kit.Blocked(3, "waiting"),
		kit.Scheduled(4, "waiting", kit.Moment),
		kit.Scheduled(5, "free", kit.Moment),
		kit.Scheduled(6, "", kit.Moment),
		kit.Retrying(7, "", kit.After(time.Hour)),
		kit.Scheduled(8, "later", kit.Moment),
		kit.Blocked(9, "later"), // published after it and already waiting
		kit.Retrying(10, "waiting", kit.Moment),
	}
	lease := o.Park(t, deliveries...)
	got, next := o.DueOffsets(t, nil)
	require.Equal(t, []int64{5, 6, 10}, got)
	kit.RequireTime(t, kit.After(time.Hour), next)

	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Unpark = kit.Refs(deliveries[0], deliveries[2], deliveries[8], deliveries[9])
	})
	got, _ = o.DueOffsets(t, nil)
	require.Equal(t, []int64{2, 4, 5, 6, 8}, got)
}

func quietKey(t *testing.T, o *kit.Outbox) {
	quiet := kit.Parked(1, "k", store.StateQuiet, kit.After(time.Hour))
	lease := o.Park(t, quiet, kit.Blocked(2, "k"), kit.Scheduled(3, "k", kit.Moment), kit.Parked(4, "", store.StateQuiet, kit.Moment))
	got, next := o.DueOffsets(t, nil)
	require.Equal(t, []int64{4}, got)
	kit.RequireTime(t, kit.After(time.Hour), next)
	require.Equal(t, map[string]bool{"k": true}, keysHeld(t, o, kit.Lane("mail"), false, 10))
	require.Equal(t, []int64{1, 2}, kit.Offsets(followers(t, o, false, 10, "k")))
	require.Equal(t, 1, o.RequeueAll(t, store.ParkedFilter{Sink: "mail", Key: "k", States: []store.State{store.StateQuiet}}, 10))
	o.Write(t, lease, func(c *store.Checkpoint) { c.Unpark = kit.Refs(quiet) })
	require.Equal(t, map[string]bool{"k": false}, keysHeld(t, o, kit.Lane("mail"), false, 10))

	o.Park(t, kit.Parked(5, "", store.StateQuiet, time.Now().Add(-time.Hour)))
	figures, err := o.ParkedFigures(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, figures[0].Overdue, "only the scheduled one: the backlog of a night is due at once")
}

func haltedKey(t *testing.T, o *kit.Outbox) {
	o.Park(t, kit.Dead(1, "k"), kit.Scheduled(2, "k", kit.Moment), kit.Dead(3, ""), kit.Scheduled(4, "", kit.Moment))
	got, _ := o.DueOffsets(t, nil)
	require.Equal(t, []int64{2, 4}, got)
	got, _ = o.DueOffsets(t, func(q *store.DueQuery) { q.Halt = true })
	require.Equal(t, []int64{4}, got)
}

func scheduledTogether(t *testing.T, o *kit.Outbox) {
	o.Park(t, kit.Scheduled(1, "k", kit.Moment), kit.Scheduled(2, "k", kit.After(-time.Second)), kit.Scheduled(3, "k", kit.After(time.Hour)))
	got, _ := o.DueOffsets(t, nil)
	require.Equal(t, []int64{2, 1}, got)
	require.Empty(t, keysHeld(t, o, kit.Lane("mail"), true, 10))
}

// followers returns the deliveries that hold back keys of the sink "mail", from all pages.
func followers(t require.TestingT, o *kit.Outbox, halt bool, limit int, keys ...string) []store.Parked {
	parked, answered, err := o.Followers(context.Background(), kit.Lane("mail"), keys, halt, limit)
	require.NoError(t, err)
	require.Equal(t, len(keys), answered)
	return parked
}

func followersOrder(t *testing.T, o *kit.Outbox) {
	o.Park(t, kit.Retrying(1, "k", kit.Moment), kit.Blocked(9, "k"), kit.Blocked(3, "k"), kit.Blocked(5, "k"), kit.Blocked(4, "other"), kit.Dead(2, "k"), kit.Scheduled(6, "k", kit.Moment))
	for limit, want := range map[int][]int64{1: {1}, 2: {1, 3}, 3: {1, 3, 5}, 4: {1, 3, 5, 9}, 10: {1, 3, 5, 9}} {
		got := followers(t, o, false, limit, "k")
		require.Equal(t, want, kit.Offsets(got))
		require.Equal(t, store.StateRetrying, got[0].State)
		require.Equal(t, "k", got[0].Envelope.Key)
		require.True(t, kit.Moment.Equal(got[0].DueAt))
	}
	require.Equal(t, []int64{1, 2, 3, 5, 9}, kit.Offsets(followers(t, o, true, 10, "k")))
	require.Empty(t, followers(t, o, true, 10, "unknown"))
}

func followersOfKeys(t *testing.T, o *kit.Outbox) {
	require.Empty(t, followers(t, o, true, 10))
	o.Park(t,
		kit.Blocked(1, "a"), kit.Retrying(2, "b", kit.Moment), kit.Blocked(3, "a"), kit.Dead(4, "b"), kit.Blocked(5, "a"), kit.Blocked(6, "b"),
		kit.Dead(7, "c"), kit.Scheduled(8, "d", kit.Moment), kit.Retrying(9, "", kit.Moment), kit.Blocked(10, "A"), kit.Blocked(11, "a "))
	o.ParkFor(t, "web", kit.Blocked(12, "a"))
	require.Equal(t, []int64{2, 6, 1, 3}, kit.Offsets(followers(t, o, false, 2, "b", "d", "a", "c", "unknown")))
	require.Equal(t, []int64{7, 1, 3, 5, 10, 2, 4, 6}, kit.Offsets(followers(t, o, true, 3, "c", "a", "unknown", "A", "b")))
	var many []string
	for i := range 500 {
		many = append(many, fmt.Sprint("k", i))
	}
	require.Equal(t, []int64{11}, kit.Offsets(followers(t, o, true, 3, append(many, "a ")...)))
}

func largeFollowers(t *testing.T, o *kit.Outbox) {
	large := []byte(`{"text":"` + strings.Repeat("x", 3<<20) + `"}`)
	lease := o.Hold(t, "mail")
	for i, key := range []string{"a", "b", "b", "c", "d", "e", "big", "big", "big", "big"} {
		o.Write(t, lease, func(c *store.Checkpoint) {
			p := kit.Blocked(int64(i+1), key)
			p.Envelope.Payload = large
			c.Park = []store.Parked{p}
		})
	}
	keys := []string{"a", "none", "b", "c", "unknown", "d", "e", "none too", "big", "nothing"}
	var got []int64
	for asked := 0; len(keys) > 0; asked++ {
		parked, answered, err := o.Followers(t.Context(), kit.Lane("mail"), keys, false, 10)
		require.NoError(t, err)
		require.Positive(t, answered)
		if asked == 0 {
			require.Less(t, answered, len(keys), "not all at once")
		}
		for _, p := range parked {
			require.Contains(t, keys[:answered], p.Envelope.Key)
			require.Len(t, p.Envelope.Payload, len(large))
		}
		got, keys = append(got, kit.Offsets(parked)...), keys[answered:]
	}
	require.Subset(t, got, []int64{1, 2, 3, 4, 5, 6, 7})
	require.IsIncreasing(t, got)
	require.NotContains(t, got, int64(10), "also within one key")
}

// keysHeld returns the held keys of a lane, read in pages, and whether they have a head.
func keysHeld(t require.TestingT, o *kit.Outbox, lane store.Lane, halt bool, page int) map[string]bool {
	held, after := make(map[string]bool), ""
	for {
		var keys []store.HeldKey
		require.NoError(t, o.Repeat(func() (err error) {
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

func heldKeys(t *testing.T, o *kit.Outbox) {
	require.Empty(t, keysHeld(t, o, kit.Lane("mail"), true, 1))
	o.Park(t,
		kit.Retrying(1, "a", kit.Moment), kit.Blocked(2, "a"), kit.Blocked(3, "Ä"), kit.Dead(4, "a"), kit.Blocked(5, "B"), kit.Retrying(6, "", kit.Moment),
		kit.Dead(7, "b"), kit.Scheduled(8, "c", kit.Moment), kit.Blocked(9, "a "), kit.Blocked(10, "%"))
	for page := 1; page < 8; page++ {
		require.Equal(t, map[string]bool{"a": true, "Ä": false, "B": false, "a ": false, "%": false}, keysHeld(t, o, kit.Lane("mail"), false, page))
		require.Equal(t, map[string]bool{"a": true, "Ä": false, "B": false, "b": true, "a ": false, "%": false}, keysHeld(t, o, kit.Lane("mail"), true, page))
		require.Empty(t, keysHeld(t, o, kit.Lane("web"), true, page))
	}
}

func unpark(t *testing.T, o *kit.Outbox) {
	first := kit.Retrying(1, "", kit.Moment)
	lease := o.Park(t, first, kit.Retrying(2, "", kit.Moment))
	o.ParkFor(t, "events", first)

	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Unpark = append(kit.Refs(first), store.Ref{Offset: 2, ID: "of another log"}, store.Ref{Offset: 99, ID: "x"})
	})
	got, _ := o.DueOffsets(t, nil)
	require.Equal(t, []int64{2}, got)
	got, _ = o.DueOffsets(t, func(q *store.DueQuery) { q.Lane = kit.Lane("events") })
	require.Equal(t, []int64{1}, got)
}

func parkedLanes(t *testing.T, o *kit.Outbox) {
	two := store.Lanes("mail", 2)
	lease := o.HoldLane(t, two[0], "w1")
	first, second := kit.Retrying(1, "a", kit.Moment), kit.Retrying(2, "b", kit.Moment)
	first.Envelope.Slot, second.Envelope.Slot = two[0].Slots.Last, two[1].Slots.First
	o.Write(t, lease, func(c *store.Checkpoint) { c.Park = []store.Parked{first, second} })

	for i, want := range []struct {
		offset int64
		key    string
	}{{1, "a"}, {2, "b"}} {
		got, _ := o.DueOffsets(t, func(q *store.DueQuery) { q.Lane = two[i] })
		require.Equal(t, []int64{want.offset}, got)
		require.Equal(t, map[string]bool{want.key: true}, keysHeld(t, o, two[i], false, 10))
	}
	got, _ := o.DueOffsets(t, func(q *store.DueQuery) { q.Lane = kit.Lane("events") })
	require.Empty(t, got)
}

// parkedOfTwoLogs parks two envelopes with the same offset: the log was truncated between them.
func parkedOfTwoLogs(t *testing.T, o *kit.Outbox) {
	before, now := kit.Retrying(1, "k", kit.Moment), kit.Retrying(1, "k", kit.After(time.Hour))
	before.Attempt, now.Attempt = 7, 1
	lease := o.Park(t, before)
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Park = []store.Parked{now}
		c.Receipts = []store.Receipt{
			{Offset: 2, ID: "before", Receipt: "http 202", Attempt: 1, DeliveredAt: kit.Moment},
			{Offset: 2, ID: "now", Receipt: "http 202", Attempt: 1, DeliveredAt: kit.Moment},
		}
	})
	require.Equal(t, "n=2 \n", o.Dump(t, `SELECT count(*) AS n FROM outbox_receipts`))
	due, next := o.DueAt(t, kit.Moment)
	require.Len(t, due, 1)
	require.Equal(t, before.Envelope.ID, due[0].Envelope.ID)
	require.Equal(t, before.Envelope.Payload, due[0].Envelope.Payload)
	require.Equal(t, 7, due[0].Attempt)
	kit.RequireTime(t, now.DueAt, next)

	o.Write(t, lease, func(c *store.Checkpoint) { c.Unpark = kit.Refs(before) })
	due, _ = o.DueAt(t, now.DueAt)
	require.Len(t, due, 1)
	require.Equal(t, now.Envelope.ID, due[0].Envelope.ID)
}

// parkedAndReadAgain is about the head of a key whose row is read from the log again: it must not wait
// for itself.
func parkedAndReadAgain(t *testing.T, o *kit.Outbox) {
	head := kit.Retrying(1, "k", kit.Moment)
	lease := o.Park(t, head)
	again := head
	again.State, again.DueAt = store.StateBlocked, time.Time{}
	o.Write(t, lease, func(c *store.Checkpoint) { c.Park = []store.Parked{again, kit.Blocked(2, "k")} })
	due, _ := o.DueOffsets(t, nil)
	require.Equal(t, []int64{1}, due)
	require.Equal(t, map[string]bool{"k": true}, keysHeld(t, o, kit.Lane("mail"), false, 10))
	require.Equal(t, []int64{1, 2}, kit.Offsets(followers(t, o, false, 10, "k")))
}
