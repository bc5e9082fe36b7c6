package deliveries

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"
)

// collectionFacts are about deliveries that are collected in groups.
var collectionFacts = []kit.Fact{
	{"a collection is due a while after its last member, and no later than that after its first", collectionDue},
	{"a collection is due at once when it has its size", collectionFull},
	{"a closed collection has its members in log order, under one number, and its first member is due", collectionClosed},
	{"what is beyond the size opens the next collection, and is due at once if it fills that", collectionLeftovers},
	{"a closed collection holds back the next one of its group, and no other group", collectionHolds},
	{"an ended collection leaves nothing, unless members have come meanwhile", collectionEnded},
	{"an end applies to the collection with its number only", collectionEndedOnce},
	{"collections end at some megabytes", largeCollections},
	{"large members are returned for fewer collections, at least for one", largeMembers},
	{"of the newest only the last member is left, and the archive says by which the others are superseded", newestOnly},
	{"the newest is found in parts", newestInParts},
	{"a collection is tried again with its first member, and keeps its number", collectionRetried},
	{"a member that is read from the log again stays as it is", memberReadAgain},
	{"a delivery that was scheduled can become a member", scheduledMember},
	{"dead members keep their number, and come back together under it", deadCollection},
	{"a requeue of an open collection changes nothing, and a closed one is tried at once", requeuedCollection},
	{"a collection goes on without discarded members, and ends with the last", discardedMembers},
	{"an open collection goes on without discarded members", discardedOpenMembers},
	{"a forgotten sink has no collections", forgottenCollections},
	{"a lost lease closes and collects nothing", collectionOfLostLease},
	{"many groups are closed in parts", manyGroups},
	{"a lane closes the groups that began in it, and learns of the next of others", collectionsOfLanes},
	{"lanes that add to the same groups and close them lose no member", concurrentCollections},
	{"random histories agree with a model", modelOfCollections},
}

// member returns a member of a group.
func member(offset int64, group string) store.Parked {
	p := kit.Parked(offset, "k", store.StateCollecting, time.Time{})
	p.Group = group
	return p
}

// members returns members of a group.
func members(group string, offsets ...int64) (list []store.Parked) {
	for _, offset := range offsets {
		list = append(list, member(offset, group))
	}
	return list
}

// hourly are terms by which nothing is due soon.
var hourly = store.CollectTerms{Wait: time.Hour, MaxWait: 10 * time.Hour}

// collect adds members in one checkpoint.
func collect(t require.TestingT, o *kit.Outbox, lease store.Lease, terms store.CollectTerms, list ...store.Parked) {
	require.NoError(t, o.Checkpoint(context.Background(), store.Checkpoint{Lease: lease, TTL: time.Hour, Collect: list, CollectTerms: terms}))
}

// collected adds members for the sink "mail", and returns its lease.
func collected(t *testing.T, o *kit.Outbox, terms store.CollectTerms, list ...store.Parked) store.Lease {
	t.Helper()
	lease := o.Hold(t, "mail")
	collect(t, o, lease, terms, list...)
	return lease
}

// tomorrow is after all terms of these facts.
func tomorrow() time.Time { return time.Now().Add(24 * time.Hour) }

// closeAll closes what is due tomorrow.
func closeAll(t require.TestingT, o *kit.Outbox, lease store.Lease, change func(q *store.CloseQuery)) store.Closed {
	q := store.CloseQuery{Lease: lease, TTL: time.Hour, Now: tomorrow(), Limit: 1000, CollectTerms: store.CollectTerms{Size: 100}}
	if change != nil {
		change(&q)
	}
	var closed store.Closed
	require.NoError(t, o.Repeat(func() (err error) { closed, err = o.CloseCollections(context.Background(), q); return err }))
	return closed
}

func ofSize(size int) func(q *store.CloseQuery) {
	return func(q *store.CloseQuery) { q.Size = size }
}

func ofNow(q *store.CloseQuery) { q.Now = time.Now() }

// begun returns the first members of closed collections of "mail", which are due tomorrow.
func begun(t *testing.T, o *kit.Outbox) []store.Parked {
	t.Helper()
	due, _ := o.DueAt(t, tomorrow().Add(time.Hour))
	for i := range due {
		require.True(t, due[i].InCollection())
	}
	return due
}

// numberOf returns the number of the only closed collection of a group.
func numberOf(t *testing.T, o *kit.Outbox, group string) store.CollectionRef {
	t.Helper()
	var ref store.CollectionRef
	for _, p := range begun(t, o) {
		if p.Group == group {
			require.Empty(t, ref.Number, "one collection")
			ref = store.CollectionRef{Group: group, Number: p.Collection}
		}
	}
	require.NotEmpty(t, ref.Number)
	return ref
}

// membersOf returns the offsets of members.
func membersOf(t *testing.T, o *kit.Outbox, refs ...store.CollectionRef) []int64 {
	t.Helper()
	found, answered, err := o.Store.Members(t.Context(), "mail", refs)
	require.NoError(t, err)
	require.Equal(t, len(refs), answered)
	return kit.Offsets(found)
}

// deliver ends a collection, all of whose members are delivered.
func deliver(t *testing.T, o *kit.Outbox, lease store.Lease, ref store.CollectionRef) {
	t.Helper()
	found, _, err := o.Store.Members(t.Context(), lease.Lane.Sink, []store.CollectionRef{ref})
	require.NoError(t, err)
	o.Write(t, lease, func(c *store.Checkpoint) { c.Unpark, c.Collected = kit.Refs(found...), []store.CollectionRef{ref} })
}

// groupsLeft returns the rows of groups.
func groupsLeft(t *testing.T, o *kit.Outbox) string {
	t.Helper()
	return o.Dump(t, `SELECT sink, collect_group FROM outbox_collections ORDER BY sink, collect_group`)
}

func collectionDue(t *testing.T, o *kit.Outbox) {
	start := time.Now()
	lease := collected(t, o, hourly, members("a", 1, 2)...)
	closed := closeAll(t, o, lease, ofNow)
	require.Zero(t, closed.Collections)
	require.WithinDuration(t, start.Add(time.Hour), closed.Next, time.Minute)
	require.Empty(t, begun(t, o), "open ones are not due")

	later := hourly
	later.Wait = 2 * time.Hour
	collect(t, o, lease, later, member(3, "a"))
	require.WithinDuration(t, start.Add(2*time.Hour), closeAll(t, o, lease, ofNow).Next, time.Minute, "after the last")
	later.Wait, later.MaxWait = 20*time.Hour, 20*time.Hour
	collect(t, o, lease, later, member(4, "a"))
	require.WithinDuration(t, start.Add(10*time.Hour), closeAll(t, o, lease, ofNow).Next, time.Minute, "no later than after the first")

	collect(t, o, lease, store.CollectTerms{Wait: time.Hour, MaxWait: time.Minute}, member(5, "b"))
	require.WithinDuration(t, start.Add(time.Minute), closeAll(t, o, lease, ofNow).Next, 30*time.Second)
	closed = closeAll(t, o, lease, func(q *store.CloseQuery) { q.Now = start.Add(time.Hour) })
	require.Equal(t, 1, closed.Collections)
	require.WithinDuration(t, start.Add(10*time.Hour), closed.Next, time.Minute)
	closed = closeAll(t, o, lease, nil)
	require.Equal(t, 1, closed.Collections)
	require.Zero(t, closed.Next)
}

func collectionFull(t *testing.T, o *kit.Outbox) {
	three := hourly
	three.Size = 3
	lease := collected(t, o, three, append(members("a", 1, 2, 3), members("b", 4, 5)...)...)
	require.Equal(t, 1, closeAll(t, o, lease, ofNow).Collections)
	require.Equal(t, []int64{1}, kit.Offsets(begun(t, o)))
	collect(t, o, lease, three, member(6, "b"), member(7, "c"))
	require.Equal(t, 1, closeAll(t, o, lease, ofNow).Collections)
	require.Equal(t, []int64{4, 5, 6}, membersOf(t, o, numberOf(t, o, "b")))
}

func collectionClosed(t *testing.T, o *kit.Outbox) {
	lease := collected(t, o, hourly, members("a", 5, 3)...)
	collect(t, o, lease, hourly, members("A", 1)...)
	collect(t, o, lease, hourly, members("a ", 2)...)
	collect(t, o, lease, hourly, members("a", 4)...)
	collect(t, o, o.Hold(t, "web"), hourly, members("a", 9)...)
	require.Equal(t, 3, closeAll(t, o, lease, nil).Collections)

	first := begun(t, o)
	require.Equal(t, []int64{1, 2, 3}, kit.Offsets(first))
	a := numberOf(t, o, "a")
	require.Equal(t, []int64{3, 4, 5, 1, 2}, membersOf(t, o, a, numberOf(t, o, "A"), numberOf(t, o, "a ")))
	require.Equal(t, []int64{3, 4, 5}, membersOf(t, o, store.CollectionRef{Group: "none", Number: a.Number}, a, store.CollectionRef{Group: "a", Number: "none"}))
	require.Empty(t, membersOf(t, o))
	found, _, err := o.Store.Members(t.Context(), "mail", []store.CollectionRef{a})
	require.NoError(t, err)
	for _, p := range found {
		require.Equal(t, []any{store.StateCollecting, "a", a.Number, 0}, []any{p.State, p.Group, p.Collection, p.Attempt})
		require.Equal(t, p.Envelope.Offset == 3, !p.DueAt.IsZero())
		kit.RequireTime(t, kit.Moment, p.FirstParkedAt)
	}
	require.Empty(t, keysHeld(t, o, kit.Lane("mail"), true, 10), "no key is held back")
	require.Empty(t, followers(t, o, true, 10, "k"))
	require.Zero(t, closeAll(t, o, lease, nil).Collections)
}

func collectionLeftovers(t *testing.T, o *kit.Outbox) {
	lease := collected(t, o, hourly, members("a", 1, 2, 3, 4, 5)...)
	require.Equal(t, 1, closeAll(t, o, lease, ofSize(2)).Collections)
	one := numberOf(t, o, "a")
	require.Equal(t, []int64{1, 2}, membersOf(t, o, one))
	collect(t, o, lease, hourly, member(6, "a"))
	require.Zero(t, closeAll(t, o, lease, ofSize(2)).Collections)

	deliver(t, o, lease, one)
	require.Equal(t, 1, closeAll(t, o, lease, ofSize(2)).Collections)
	two := numberOf(t, o, "a")
	require.NotEqual(t, one.Number, two.Number)
	require.Equal(t, []int64{3, 4}, membersOf(t, o, two))
	deliver(t, o, lease, two)
	require.Equal(t, 1, closeAll(t, o, lease, ofSize(2)).Collections)
	three := numberOf(t, o, "a")
	require.Equal(t, []int64{5, 6}, membersOf(t, o, three), "no more and no less than the size")
	deliver(t, o, lease, three)
	require.Empty(t, groupsLeft(t, o))

	// What fills another one is due at once, and what does not opens one.
	terms := hourly
	terms.Size = 2
	collect(t, o, lease, terms, members("b", 7, 8, 9, 10, 11)...)
	soon := func(q *store.CloseQuery) { q.Now, q.CollectTerms = time.Now().Add(time.Second), terms }
	for _, full := range [][]int64{{7, 8}, {9, 10}} {
		require.Equal(t, 1, closeAll(t, o, lease, soon).Collections)
		require.Equal(t, full, membersOf(t, o, numberOf(t, o, "b")))
		deliver(t, o, lease, numberOf(t, o, "b"))
	}
	closed := closeAll(t, o, lease, soon)
	require.Zero(t, closed.Collections)
	require.WithinDuration(t, time.Now().Add(time.Hour), closed.Next, time.Minute)
	collect(t, o, lease, terms, member(12, "b"))
	require.Equal(t, 1, closeAll(t, o, lease, soon).Collections)
	require.Equal(t, []int64{11, 12}, membersOf(t, o, numberOf(t, o, "b")))
}

func collectionHolds(t *testing.T, o *kit.Outbox) {
	lease := collected(t, o, hourly, append(members("a", 1, 2), member(3, "b"))...)
	require.Equal(t, 2, closeAll(t, o, lease, nil).Collections)
	one := numberOf(t, o, "a")
	collect(t, o, lease, hourly, member(4, "a"), member(5, "c"))
	closed := closeAll(t, o, lease, nil)
	require.Equal(t, 1, closed.Collections)
	require.Zero(t, closed.Next)
	require.Equal(t, []int64{1, 3, 5}, kit.Offsets(begun(t, o)))
	require.Equal(t, []int64{1, 2}, membersOf(t, o, one), "no member is added")

	deliver(t, o, lease, one)
	closed = closeAll(t, o, lease, ofNow)
	require.WithinDuration(t, time.Now().Add(time.Hour), closed.Next, time.Minute)
	require.Equal(t, 1, closeAll(t, o, lease, nil).Collections)
	require.Equal(t, []int64{4}, membersOf(t, o, numberOf(t, o, "a")))
}

func collectionEnded(t *testing.T, o *kit.Outbox) {
	lease := collected(t, o, hourly, append(members("a", 1, 2), member(3, "b"))...)
	closeAll(t, o, lease, nil)
	collect(t, o, lease, hourly, member(4, "b"))
	deliver(t, o, lease, numberOf(t, o, "a"))
	deliver(t, o, lease, numberOf(t, o, "b"))
	require.Equal(t, "sink=mail collect_group=b \n", groupsLeft(t, o))
	require.Empty(t, begun(t, o))

	// One checkpoint ends a collection, and adds to its group.
	closeAll(t, o, lease, nil)
	b := numberOf(t, o, "b")
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Unpark, c.Collected = kit.Refs(begun(t, o)...), []store.CollectionRef{b}
		c.Collect, c.CollectTerms = members("b", 5), hourly
	})
	require.Equal(t, 1, closeAll(t, o, lease, nil).Collections)
}

func collectionEndedOnce(t *testing.T, o *kit.Outbox) {
	lease := collected(t, o, hourly, member(1, "a"), member(2, "b"))
	closeAll(t, o, lease, nil)
	one := numberOf(t, o, "a")
	deliver(t, o, lease, one)
	collect(t, o, lease, hourly, member(3, "a"))
	closeAll(t, o, lease, nil)
	collect(t, o, lease, hourly, member(4, "a"))
	deliver(t, o, lease, one)
	deliver(t, o, lease, store.CollectionRef{Group: "c", Number: one.Number})
	require.Zero(t, closeAll(t, o, lease, nil).Collections, "the second collection is not ended")
	require.Equal(t, "sink=mail collect_group=a \nsink=mail collect_group=b \n", groupsLeft(t, o))
}

// large are members with three megabytes each.
func large(group string, offsets ...int64) []store.Parked {
	list := members(group, offsets...)
	for i := range list {
		list[i].Envelope.Payload = []byte(`{"text":"` + strings.Repeat("x", 3<<20) + `"}`)
	}
	return list
}

func largeCollections(t *testing.T, o *kit.Outbox) {
	lease := o.Hold(t, "mail")
	for _, p := range append(large("a", 1, 2, 3, 4), member(5, "a"), member(6, "b")) {
		collect(t, o, lease, hourly, p)
	}
	require.Equal(t, 2, closeAll(t, o, lease, nil).Collections)
	one := numberOf(t, o, "a")
	require.Equal(t, []int64{1, 2}, membersOf(t, o, one))
	deliver(t, o, lease, one)
	require.Equal(t, 1, closeAll(t, o, lease, nil).Collections)
	require.Equal(t, []int64{3, 4, 5}, membersOf(t, o, numberOf(t, o, "a")))
}

func largeMembers(t *testing.T, o *kit.Outbox) {
	lease := o.Hold(t, "mail")
	var groups []string
	for i := range 8 {
		groups = append(groups, fmt.Sprint("g", i))
		collect(t, o, lease, hourly, large(groups[i], int64(i+1))...)
	}
	closeAll(t, o, lease, nil)
	var refs []store.CollectionRef
	number := begun(t, o)[0].Collection // of all that were closed together
	for _, group := range groups {
		refs = append(refs, store.CollectionRef{Group: group, Number: number})
	}
	var got []int64
	for asked := 0; len(refs) > 0; asked++ {
		found, answered, err := o.Store.Members(t.Context(), "mail", refs)
		require.NoError(t, err)
		require.Positive(t, answered)
		require.Len(t, found, answered)
		if asked == 0 {
			require.Less(t, answered, len(refs), "not all at once")
		}
		got, refs = append(got, kit.Offsets(found)...), refs[answered:]
	}
	require.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7, 8}, got)
}

func newestOnly(t *testing.T, o *kit.Outbox) {
	list := append(members("a", 2, 3, 1), member(4, "b"))
	lease := collected(t, o, hourly, list...)
	closed := closeAll(t, o, lease, func(q *store.CloseQuery) { q.Newest = true })
	require.Equal(t, []int{2, 2}, []int{closed.Collections, closed.Superseded})
	require.Equal(t, []int64{3}, membersOf(t, o, numberOf(t, o, "a")))
	require.Equal(t, []int64{3, 4}, kit.Offsets(begun(t, o)))
	by := notification.SupersededBy(list[1].Envelope.ID)
	require.Equal(t, fmt.Sprintf("offset=1 receipt=%s attempt=0 \noffset=2 receipt=%[1]s attempt=0 \n", by),
		o.Dump(t, `SELECT {offset}, receipt, attempt FROM outbox_receipts WHERE sink = 'mail' ORDER BY {offset}`))
}

func newestInParts(t *testing.T, o *kit.Outbox) {
	lease := collected(t, o, hourly, append(members("a", 1, 2, 3, 4, 5), member(6, "b"))...)
	newest := func(q *store.CloseQuery) { q.Newest, q.Size = true, 2 }
	closed := closeAll(t, o, lease, newest)
	require.Equal(t, []int{1, 1}, []int{closed.Collections, closed.Superseded})
	require.False(t, closed.Next.IsZero() || closed.Next.After(tomorrow()), "due at once")
	superseded := closed.Superseded
	for parts := 0; closed.Collections+closed.Superseded > 0; parts++ {
		require.Less(t, parts, 10)
		closed = closeAll(t, o, lease, newest)
		superseded += closed.Superseded
	}
	require.Equal(t, 4, superseded)
	require.Equal(t, []int64{5}, membersOf(t, o, numberOf(t, o, "a")))
}

func collectionRetried(t *testing.T, o *kit.Outbox) {
	lease := collected(t, o, hourly, members("a", 1, 2, 3)...)
	closeAll(t, o, lease, nil)
	ref, first := numberOf(t, o, "a"), begun(t, o)[0]
	first.Attempt, first.LastError, first.DueAt = 2, "refused", tomorrow().Add(30*time.Hour).UTC().Truncate(time.Microsecond)
	first.Attempts = kit.Attempts()[:1]
	o.Write(t, lease, func(c *store.Checkpoint) { c.Park = []store.Parked{first} })
	due, next := o.DueAt(t, tomorrow())
	require.Empty(t, due)
	kit.RequireTime(t, first.DueAt, next)
	due, _ = o.DueAt(t, first.DueAt)
	require.Len(t, due, 1)
	require.Equal(t, []any{int64(1), 2, "refused", "a", ref.Number}, []any{due[0].Envelope.Offset, due[0].Attempt, due[0].LastError, due[0].Group, due[0].Collection})
	require.Equal(t, first.Attempts, due[0].Attempts)
	require.Equal(t, []int64{1, 2, 3}, membersOf(t, o, ref))
}

func memberReadAgain(t *testing.T, o *kit.Outbox) {
	list := members("a", 1, 2)
	lease := collected(t, o, hourly, list...)
	again := slices.Clone(list)
	again[0].FirstParkedAt, again[1].LastError, again[1].Group = kit.After(time.Hour), "again", "b"
	collect(t, o, lease, hourly, again...)
	require.Equal(t, 1, closeAll(t, o, lease, nil).Collections, "nothing is in the group b")
	ref := numberOf(t, o, "a")
	collect(t, o, lease, hourly, list...)
	require.Equal(t, []int64{1, 2}, membersOf(t, o, ref))
	found, _, err := o.Store.Members(t.Context(), "mail", []store.CollectionRef{ref})
	require.NoError(t, err)
	kit.RequireTime(t, kit.Moment, found[0].FirstParkedAt)
	require.Empty(t, found[1].LastError)
	deliver(t, o, lease, ref)
	closed := closeAll(t, o, lease, nil)
	require.Zero(t, closed.Collections)
	require.Zero(t, closed.Next)
	require.Empty(t, groupsLeft(t, o))
}

func scheduledMember(t *testing.T, o *kit.Outbox) {
	scheduled := kit.Scheduled(1, "k", kit.Moment)
	lease := o.Park(t, scheduled)
	collects := scheduled
	collects.State, collects.DueAt, collects.Group = store.StateCollecting, time.Time{}, "a"
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Unpark, c.Collect, c.CollectTerms = kit.Refs(scheduled), []store.Parked{collects}, hourly
	})
	require.Empty(t, begun(t, o))
	require.Equal(t, 1, closeAll(t, o, lease, nil).Collections)
	require.Equal(t, []int64{1}, membersOf(t, o, numberOf(t, o, "a")))
}

func collectionOfLostLease(t *testing.T, o *kit.Outbox) {
	lost := collected(t, o, hourly, members("a", 1, 2)...)
	require.NoError(t, o.Release(t.Context(), lost))
	lease := o.HoldLane(t, kit.Lane("mail"), "w2")
	before := o.DumpAll(t)
	_, err := o.CloseCollections(t.Context(), store.CloseQuery{Lease: lost, TTL: time.Hour, Now: tomorrow(), Limit: 10, CollectTerms: store.CollectTerms{Size: 10}})
	require.ErrorIs(t, err, store.ErrLeaseLost)
	require.ErrorIs(t, o.Checkpoint(t.Context(), store.Checkpoint{Lease: lost, TTL: time.Hour, Collect: members("a", 3), CollectTerms: hourly}), store.ErrLeaseLost)
	require.Equal(t, before, o.DumpAll(t))
	require.Equal(t, 1, closeAll(t, o, lease, nil).Collections)
	o.Exec(t, `UPDATE outbox_cursors SET lease_until = {2020-01-01T00:00:00Z}`)
	collect(t, o, lease, hourly, member(3, "b"))
	o.Exec(t, `UPDATE outbox_cursors SET lease_until = {2020-01-01T00:00:00Z}`)
	closeAll(t, o, lease, nil)
	_, err = o.Acquire(t.Context(), kit.Lane("mail"), "w1", time.Hour)
	require.ErrorIs(t, err, store.ErrLeaseHeld, "closing renews the lease")
}

func manyGroups(t *testing.T, o *kit.Outbox) {
	lease := o.Hold(t, "mail")
	var list []store.Parked
	const groups = 2500 // more than a statement takes
	for i := range int64(groups) {
		list = append(list, members(fmt.Sprintf("g%04d", i), 2*i+1, 2*i+2)...)
	}
	collect(t, o, lease, hourly, list...)
	closed := closeAll(t, o, lease, func(q *store.CloseQuery) { q.Limit = 300 })
	require.Equal(t, 300, closed.Collections)
	require.False(t, closed.Next.IsZero() || closed.Next.After(tomorrow()), "there are more")
	require.Equal(t, groups-300, closeAll(t, o, lease, func(q *store.CloseQuery) { q.Limit = 2 * groups }).Collections)

	due, _, err := o.Due(t.Context(), store.DueQuery{Lane: kit.Lane("mail"), Now: tomorrow().Add(time.Hour), Limit: 2 * groups})
	require.NoError(t, err)
	require.Len(t, due, groups)
	var refs []store.CollectionRef
	for _, p := range due {
		refs = append(refs, store.CollectionRef{Group: p.Group, Number: p.Collection})
	}
	found, answered, err := o.Store.Members(t.Context(), "mail", refs)
	require.NoError(t, err)
	require.Equal(t, groups, answered)
	for i, p := range found {
		require.Equal(t, refs[i/2], store.CollectionRef{Group: p.Group, Number: p.Collection})
	}
	o.Write(t, lease, func(c *store.Checkpoint) { c.Unpark, c.Collected = kit.Refs(found...), refs })
	require.Empty(t, groupsLeft(t, o))
}

func collectionsOfLanes(t *testing.T, o *kit.Outbox) {
	leases := o.HoldLanes(t, "mail", 2)
	in := func(lane int, list ...store.Parked) []store.Parked {
		for i := range list {
			list[i].Envelope.Slot = leases[lane].Lane.Slots.Last
		}
		return list
	}
	collect(t, o, leases[0], store.CollectTerms{Wait: time.Nanosecond, MaxWait: time.Nanosecond}, in(0, members("a", 1)...)...)
	collect(t, o, leases[1], hourly, in(1, members("a", 2)...)...)
	collect(t, o, leases[1], hourly, in(1, members("b", 3)...)...)
	soon := time.Now().Add(time.Minute)
	atSoon := func(q *store.CloseQuery) { q.Now = soon }
	closed := closeAll(t, o, leases[1], atSoon)
	require.Zero(t, closed.Collections)
	require.WithinDuration(t, time.Now().Add(time.Hour), closed.Next, time.Minute, "what is due in another lane is left to that")
	closed = closeAll(t, o, leases[0], atSoon)
	require.Equal(t, 1, closed.Collections)
	require.WithinDuration(t, time.Now().Add(time.Hour), closed.Next, time.Minute)
	due, _, err := o.Due(t.Context(), store.DueQuery{Lane: leases[0].Lane, Now: soon, Limit: 10})
	require.NoError(t, err)
	require.Equal(t, []int64{1}, kit.Offsets(due))
	require.Equal(t, []int64{1, 2}, membersOf(t, o, store.CollectionRef{Group: "a", Number: due[0].Collection}))
}

// concurrentCollections lets four lanes add members to three groups and close what is due, all at the same time.
func concurrentCollections(t *testing.T, o *kit.Outbox) {
	const lanes, rounds = 4, 25
	leases := o.HoldLanes(t, "mail", lanes)
	var all errgroup.Group
	for lane, lease := range leases {
		all.Go(func() error {
			for round := range int64(rounds) {
				first := int64(lane)*1000 + round*4 + 1
				list := slices.Concat(members("a", first, first+1), members("b", first+2), members("c", first+3))
				for i := range list {
					list[i].Envelope.Slot = lease.Lane.Slots.First
				}
				c := store.Checkpoint{Lease: lease, TTL: time.Hour, Collect: list, CollectTerms: store.CollectTerms{Wait: time.Nanosecond, MaxWait: time.Nanosecond}}
				if err := o.Checkpoint(context.Background(), c); err != nil {
					return err
				}
				err := o.Repeat(func() error {
					_, err := o.CloseCollections(context.Background(), store.CloseQuery{Lease: lease, TTL: time.Hour, Now: tomorrow(), Limit: 10, CollectTerms: store.CollectTerms{Size: 7}})
					return err
				})
				if err != nil {
					return err
				}
				if err := endAll(o, lease); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
	for again := true; again; {
		again = false
		for _, lease := range leases {
			again = closeAll(t, o, lease, ofSize(7)).Collections > 0 || again
			require.NoError(t, endAll(o, lease))
		}
	}
	require.Empty(t, groupsLeft(t, o))
	require.Equal(t, "n=0 \n", o.Dump(t, `SELECT count(*) AS n FROM outbox_parked`))
	require.Equal(t, fmt.Sprintf("n=%d \n", lanes*rounds*4), o.Dump(t, `SELECT count(*) AS n FROM outbox_receipts`))
	require.Empty(t, o.Dump(t, `SELECT receipt FROM outbox_receipts GROUP BY receipt HAVING count(*) > 3 * 7`), "three groups may have been closed together")
}

// endAll delivers the closed collections of a lane, with receipts.
func endAll(o *kit.Outbox, lease store.Lease) error {
	due, _, err := o.Due(context.Background(), store.DueQuery{Lane: lease.Lane, Now: tomorrow().Add(time.Hour), Limit: 100})
	if err != nil || len(due) == 0 {
		return err
	}
	c := store.Checkpoint{Lease: lease, TTL: time.Hour}
	for i := range due {
		c.Collected = append(c.Collected, store.CollectionRef{Group: due[i].Group, Number: due[i].Collection})
	}
	found, answered, err := o.Store.Members(context.Background(), lease.Lane.Sink, c.Collected)
	if err != nil {
		return err
	}
	c.Unpark, c.Collected = kit.Refs(found...), c.Collected[:answered]
	for _, p := range found {
		c.Receipts = append(c.Receipts, store.Receipt{Offset: p.Envelope.Offset, ID: p.Envelope.ID, Receipt: notification.Receipt(p.Collection), DeliveredAt: time.Now()})
	}
	return o.Checkpoint(context.Background(), c)
}
