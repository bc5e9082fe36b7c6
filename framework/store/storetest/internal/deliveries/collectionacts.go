package deliveries

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"
)

// What people do to collections.

// die parks the members of a collection as dead, and ends it.
func die(t *testing.T, o *kit.Outbox, lease store.Lease, ref store.CollectionRef) {
	t.Helper()
	found, _, err := o.Store.Members(t.Context(), "mail", []store.CollectionRef{ref})
	require.NoError(t, err)
	for i := range found {
		found[i].State, found[i].Attempt, found[i].DueAt, found[i].LastError = store.StateDead, 3, time.Time{}, "refused"
	}
	o.Write(t, lease, func(c *store.Checkpoint) { c.Park, c.Collected = found, []store.CollectionRef{ref} })
}

// operate runs a person's action on deliveries of "mail".
func operate(t *testing.T, o *kit.Outbox, action string, limit int, f store.ParkedFilter) int {
	t.Helper()
	f.Sink = "mail"
	id := notification.NewID()
	o.BeginAction(t, id)
	do, changed := o.Requeue, 0
	if action == "discard" {
		do = o.Discard
	}
	b := store.ParkedBatch{Action: id, Filter: f, Limit: limit}
	for {
		result, err := do(t.Context(), b)
		require.NoError(t, err)
		changed += result.Changed
		if b.After = result.Last; result.Done {
			return changed
		}
	}
}

func deadCollection(t *testing.T, o *kit.Outbox) {
	lease := collected(t, o, hourly, append(members("a", 1, 2, 3), members("b", 4, 5)...)...)
	closeAll(t, o, lease, nil)
	a, b := numberOf(t, o, "a"), numberOf(t, o, "b")
	die(t, o, lease, a)
	die(t, o, lease, b)
	require.Empty(t, begun(t, o))
	require.Empty(t, groupsLeft(t, o))
	require.Empty(t, membersOf(t, o, a))
	require.Equal(t, map[string]bool{"k": true}, keysHeld(t, o, kit.Lane("mail"), true, 10))
	collect(t, o, lease, hourly, member(6, "a"))
	require.Equal(t, 1, closeAll(t, o, lease, nil).Collections, "the group goes on")
	next := numberOf(t, o, "a")
	require.NotEqual(t, a.Number, next.Number)

	require.Equal(t, 1, operate(t, o, "requeue", 1, at(t, o, 2)), "and the others with it")
	require.Equal(t, []int64{1, 6}, slices.Sorted(slices.Values(kit.Offsets(begun(t, o)))))
	require.Equal(t, []int64{1, 2, 3}, membersOf(t, o, a))
	found, _, err := o.Store.Members(t.Context(), "mail", []store.CollectionRef{a})
	require.NoError(t, err)
	require.Zero(t, found[0].Attempt)
	deliver(t, o, lease, a)
	require.Equal(t, []int64{6}, membersOf(t, o, next))
	collect(t, o, lease, hourly, member(7, "a"))
	require.Zero(t, closeAll(t, o, lease, nil).Collections, "its end is not that of the next one")

	require.Equal(t, 2, operate(t, o, "requeue", 10, store.ParkedFilter{States: []store.State{store.StateDead}}))
	require.Equal(t, []int64{4, 5}, membersOf(t, o, b))
	die(t, o, lease, b)
	require.Equal(t, 1, operate(t, o, "discard", 1, at(t, o, 4)))
	require.Equal(t, 1, operate(t, o, "requeue", 10, store.ParkedFilter{States: []store.State{store.StateDead}}))
	require.Equal(t, []int64{5}, membersOf(t, o, b))
	deliver(t, o, lease, b)
	require.Equal(t, "sink=mail collect_group=a \n", groupsLeft(t, o))
}

// refOf returns the reference of the parked delivery at an offset.
func refOf(t *testing.T, o *kit.Outbox, offset int64) store.Ref {
	t.Helper()
	found, err := o.FindParked(t.Context(), store.ParkedFilter{Sink: "mail"}, store.ParkedPlace{}, 100)
	require.NoError(t, err)
	at := slices.IndexFunc(found, func(d store.ParkedDelivery) bool { return d.Envelope.Offset == offset })
	require.GreaterOrEqual(t, at, 0)
	return store.RefOf(&found[at].Envelope)
}

// at selects deliveries by their offsets.
func at(t *testing.T, o *kit.Outbox, offsets ...int64) (f store.ParkedFilter) {
	t.Helper()
	for _, offset := range offsets {
		f.Places = append(f.Places, store.ParkedPlace{Sink: "mail", Ref: refOf(t, o, offset)})
	}
	return f
}

func requeuedCollection(t *testing.T, o *kit.Outbox) {
	lease := collected(t, o, hourly, append(members("a", 1, 2), member(3, "b"))...)
	require.Zero(t, operate(t, o, "requeue", 10, store.ParkedFilter{}))
	require.Zero(t, closeAll(t, o, lease, ofNow).Collections)
	closeAll(t, o, lease, nil)
	a, first := numberOf(t, o, "a"), begun(t, o)[0]
	first.Attempt, first.DueAt = 5, tomorrow()
	o.Write(t, lease, func(c *store.Checkpoint) { c.Park = []store.Parked{first} })
	require.Equal(t, 1, operate(t, o, "requeue", 10, store.ParkedFilter{States: []store.State{store.StateCollecting}, Group: "a"}))
	due, _ := o.DueAt(t, time.Now().Add(time.Minute))
	require.Len(t, due, 1)
	require.Equal(t, []any{int64(1), 0, a.Number}, []any{due[0].Envelope.Offset, due[0].Attempt, due[0].Collection})
	require.Equal(t, []int64{1, 2}, membersOf(t, o, a))
}

func discardedMembers(t *testing.T, o *kit.Outbox) {
	lease := collected(t, o, hourly, members("a", 1, 2, 3, 4)...)
	closeAll(t, o, lease, nil)
	collect(t, o, lease, hourly, member(5, "a"))
	a, first := numberOf(t, o, "a"), begun(t, o)[0]
	first.DueAt = tomorrow()
	o.Write(t, lease, func(c *store.Checkpoint) { c.Park = []store.Parked{first} })
	require.Equal(t, 1, operate(t, o, "discard", 10, at(t, o, 3)))
	due, _ := o.DueAt(t, time.Now().Add(time.Minute))
	require.Empty(t, due, "the first one is still there")
	require.Equal(t, 1, operate(t, o, "discard", 10, at(t, o, 1)))
	due, _ = o.DueAt(t, time.Now().Add(time.Minute))
	require.Equal(t, []int64{2}, kit.Offsets(due))
	require.Equal(t, []int64{2, 4}, membersOf(t, o, a))
	require.Equal(t, 2, operate(t, o, "discard", 1, at(t, o, 2, 4)))
	require.Empty(t, begun(t, o))
	require.Equal(t, 1, closeAll(t, o, lease, nil).Collections, "the next one")
	require.Equal(t, []int64{5}, membersOf(t, o, numberOf(t, o, "a")))
	require.Equal(t, 1, operate(t, o, "discard", 10, store.ParkedFilter{Group: "a"}))
	require.Empty(t, groupsLeft(t, o))
}

func discardedOpenMembers(t *testing.T, o *kit.Outbox) {
	lease := collected(t, o, hourly, append(members("a", 1, 2), member(3, "b"))...)
	require.Equal(t, 2, operate(t, o, "discard", 10, at(t, o, 1, 3)))
	require.Equal(t, 1, closeAll(t, o, lease, nil).Collections)
	require.Equal(t, []int64{2}, membersOf(t, o, numberOf(t, o, "a")))
	require.Equal(t, "sink=mail collect_group=a \n", groupsLeft(t, o))
}

func forgottenCollections(t *testing.T, o *kit.Outbox) {
	lease := collected(t, o, hourly, members("a", 1, 2)...)
	closeAll(t, o, lease, nil)
	collect(t, o, lease, hourly, member(3, "a"))
	collect(t, o, o.Hold(t, "web"), hourly, member(3, "a"))
	require.NoError(t, o.Release(t.Context(), lease))
	o.ForgetSink(t, "mail")
	require.Equal(t, "sink=web collect_group=a \n", groupsLeft(t, o))
}
