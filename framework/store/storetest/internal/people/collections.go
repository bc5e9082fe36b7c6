package people

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"
)

// collectionFacts are about what people see of collections, and do with them.
var collectionFacts = []kit.Fact{
	{"an open collection has its members and its time, and a closed one the time of its attempt", seenCollections},
	{"collections are counted, and none is overdue", countedCollections},
	{"as many members of collections are requeued as a filter for their firsts selects", requeuedCollections},
}

// member returns a member of the open collection of a group.
func member(offset int64, group string) store.Parked {
	p := kit.Parked(offset, "", store.StateCollecting, time.Time{})
	p.Group = group
	return p
}

// collect adds members to the open collections of the sink "mail", which are due after a time.
func collect(t *testing.T, o *kit.Outbox, lease store.Lease, wait time.Duration, members ...store.Parked) {
	t.Helper()
	o.Write(t, lease, func(c *store.Checkpoint) {
		c.Collect, c.CollectTerms = members, store.CollectTerms{Wait: wait, MaxWait: wait + time.Hour}
	})
}

// closeAll closes the collections that are due until a time.
func closeAll(t *testing.T, o *kit.Outbox, lease store.Lease, until time.Time) {
	t.Helper()
	_, err := o.CloseCollections(t.Context(), store.CloseQuery{Lease: lease, TTL: time.Hour, Now: until, Limit: 100, CollectTerms: store.CollectTerms{Size: 100}})
	require.NoError(t, err)
}

func seenCollections(t *testing.T, o *kit.Outbox) {
	ctx, lease := t.Context(), o.Hold(t, "mail")
	collect(t, o, lease, time.Minute, member(1, "cart-1"), member(2, "cart-2"), member(3, "cart-1"))
	o.ParkFor(t, "web", kit.Dead(1, ""))

	open, err := o.Collection(ctx, "mail", store.CollectionRef{Group: "cart-1"})
	require.NoError(t, err)
	require.Equal(t, 2, open.Members)
	require.WithinDuration(t, time.Now().Add(time.Minute), open.DueAt, 30*time.Second)
	require.Empty(t, open.Behind)

	closeAll(t, o, lease, time.Now().Add(2*time.Minute))
	firsts := find(t, o, store.ParkedFilter{Sink: "mail", Group: "cart-1", Firsts: true})
	require.Equal(t, []int64{1}, firsts)
	found, err := o.FindParked(ctx, store.ParkedFilter{Sink: "mail", Group: "cart-1"}, store.ParkedPlace{}, 10)
	require.NoError(t, err)
	number := found[0].Collection
	require.NotEmpty(t, number)
	collect(t, o, lease, time.Hour, member(4, "cart-1"))

	closed, err := o.Collection(ctx, "mail", store.CollectionRef{Group: "cart-1", Number: number})
	require.NoError(t, err)
	require.Equal(t, 2, closed.Members)
	require.True(t, found[0].DueAt.Equal(closed.DueAt))
	open, err = o.Collection(ctx, "mail", store.CollectionRef{Group: "cart-1"})
	require.NoError(t, err)
	require.Equal(t, 1, open.Members)
	require.Equal(t, number, open.Behind)

	for sink, group := range map[string]string{"mail": "cart-3", "web": "cart-1"} {
		none, err := o.Collection(ctx, sink, store.CollectionRef{Group: group})
		require.NoError(t, err)
		require.Equal(t, store.Collection{}, none)
	}
}

func countedCollections(t *testing.T, o *kit.Outbox) {
	lease := o.Hold(t, "mail")
	collect(t, o, lease, time.Minute, member(1, "cart-1"), member(2, "cart-2"), member(3, "cart-1"))
	figures := func() store.ParkedFigures {
		all, err := o.ParkedFigures(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 1)
		return all[0]
	}
	f := figures()
	require.Equal(t, 3, f.Count(store.StateCollecting))
	require.Equal(t, 2, f.Collections)
	require.Zero(t, f.Overdue)

	collect(t, o, lease, -time.Hour, member(4, "cart-2"))
	require.Zero(t, figures().Overdue, "it may wait for the hours of the sink")
}

func requeuedCollections(t *testing.T, o *kit.Outbox) {
	lease := o.Hold(t, "mail")
	collect(t, o, lease, 0, member(1, "cart-1"), member(2, "cart-1"), member(3, "cart-2"))
	closeAll(t, o, lease, time.Now().Add(time.Minute))
	collect(t, o, lease, time.Hour, member(4, "cart-1"))
	dead := kit.Dead(5, "")
	dead.Group, dead.Collection = "cart-3", "number"
	o.Write(t, lease, func(c *store.Checkpoint) { c.Park = []store.Parked{dead} })

	filter := store.ParkedFilter{Sink: "mail", States: []store.State{store.StateDead, store.StateCollecting}, Firsts: true}
	require.Equal(t, []int64{1, 3, 5}, find(t, o, filter))
	counts, _, err := o.CountParked(t.Context(), filter)
	require.NoError(t, err)
	require.Equal(t, []store.ParkedCount{{Sink: "mail", State: store.StateCollecting, Count: 2}, {Sink: "mail", State: store.StateDead, Count: 1}}, counts)
	filter.Firsts = false
	require.Equal(t, 3, o.RequeueAll(t, filter, 2))
	back, err := o.Collection(t.Context(), "mail", store.CollectionRef{Group: "cart-3", Number: "number"})
	require.NoError(t, err)
	require.Equal(t, 1, back.Members)
	require.False(t, back.DueAt.IsZero())
}
