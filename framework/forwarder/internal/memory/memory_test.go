package memory

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

var (
	mail    = store.NewLane("mail", 0, 2)
	read    = store.Ref{Offset: 4, ID: "read"}
	retried = store.Ref{Offset: 3, ID: "retried"}
	parked  = time.Unix(1_700_000_000, 0)
)

// leave ends a lease that has two deliveries without a checkpoint: one of the log, one parked.
func leave(all *Lanes, lease store.Lease) {
	l := New(lease)
	l.Add(read, Made{Receipt: "a", Row: Row{Attempt: 1, FromLog: true}})
	l.Add(retried, Made{Receipt: "b", Row: Row{Attempt: 3, State: store.StateRetrying, FirstParked: parked}})
	all.Keep(l)
}

func (l *Lane) meetsRead() bool {
	_, ok := l.Met(read, Row{FromLog: true})
	return ok
}

func (l *Lane) meetsRetried() bool {
	_, ok := l.Met(retried, Row{Attempt: 2, State: store.StateRetrying, FirstParked: parked})
	return ok
}

func TestTheNextLeaseRecallsDeliveries(t *testing.T) {
	t.Parallel()
	var all Lanes
	leave(&all, store.Lease{Lane: mail, Epoch: 7})
	l := all.Recall(store.Lease{Lane: mail, Epoch: 8})
	require.Empty(t, all)
	made, ok := l.Met(read, Row{FromLog: true})
	require.True(t, ok)
	require.EqualValues(t, "a", made.Receipt)
	require.Equal(t, 1, made.Attempt)
	require.False(t, l.meetsRead(), "once")
	require.True(t, l.meetsRetried())
	require.Zero(t, l.Len())
}

func TestOnlyTheNextLeaseOfTheLaneRecalls(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]store.Lease{
		"another forwarder had the lane": {Lane: mail, Epoch: 9},
		"the same lease again":           {Lane: mail, Epoch: 7},
		"another lane":                   {Lane: store.NewLane("mail", 1, 2), Epoch: 8},
		"another number of lanes":        {Lane: store.NewLane("mail", 0, 4), Epoch: 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all Lanes
			leave(&all, store.Lease{Lane: mail, Epoch: 7})
			require.Zero(t, all.Recall(lease).Len())
		})
	}
}

// An operator who requeues or replays a delivery changes the revision. It must be delivered, even if it
// looks like a delivery without a checkpoint.
func TestParkedDeliveriesAreForgottenWithTheRevision(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		revisions  []int64 // of consecutive leases
		remembered bool
	}{
		"the same":                   {[]int64{7, 7}, true},
		"changed":                    {[]int64{7, 8}, false},
		"the same, two leases later": {[]int64{7, 7, 7}, true},
		"changed afterwards":         {[]int64{7, 7, 8}, false},
		"changed before":             {[]int64{7, 8, 8}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all Lanes
			lease := store.Lease{Lane: mail, Revision: c.revisions[0]}
			leave(&all, lease)
			var l *Lane
			for i, revision := range c.revisions[1:] {
				lease.Epoch++
				lease.Revision = revision
				l = all.Recall(lease)
				if i < len(c.revisions)-2 {
					next := New(lease)
					next.AddAll(l)
					all.Keep(next)
				}
			}
			require.Equal(t, c.remembered, l.meetsRetried())
			require.True(t, l.meetsRead(), "a delivery of the log cannot be requeued")
		})
	}
}

func TestAParkedDeliveryThatHasChangedIsDeliveredAgain(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]Row{
		"requeued":              {Attempt: 0, State: store.StateRetrying, FirstParked: parked},
		"scheduled":             {Attempt: 2, State: store.StateScheduled, FirstParked: parked},
		"parked again":          {Attempt: 2, State: store.StateRetrying, FirstParked: parked.Add(time.Second)},
		"replayed from the log": {FromLog: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all Lanes
			leave(&all, store.Lease{Lane: mail})
			_, ok := all.Recall(store.Lease{Lane: mail, Epoch: 1}).Met(retried, row)
			require.False(t, ok)
		})
	}
}

func TestDeliveriesOfTheLogAreForgottenOnceItIsRead(t *testing.T) {
	t.Parallel()
	var all Lanes
	leave(&all, store.Lease{Lane: mail})
	l := all.Recall(store.Lease{Lane: mail, Epoch: 1})
	l.ForgetLog()
	require.False(t, l.meetsRead())
	require.True(t, l.meetsRetried())
}

func TestALaneHasOneMemory(t *testing.T) {
	t.Parallel()
	var all Lanes
	leave(&all, store.Lease{Lane: mail})
	leave(&all, store.Lease{Lane: mail, Epoch: 1})
	require.Len(t, all, 1)
	all.Keep(New(store.Lease{Lane: mail, Epoch: 2}))
	require.Empty(t, all, "a later lease has no such deliveries")
}

func TestOnlySomeLanesAreRetained(t *testing.T) {
	t.Parallel()
	var all Lanes
	other := store.NewLane("mail", 1, 2)
	leave(&all, store.Lease{Lane: mail})
	leave(&all, store.Lease{Lane: other})
	all.Retain(func(l store.Lane) bool { return l == other })
	require.Nil(t, all.Recall(store.Lease{Lane: mail, Epoch: 1}))
	require.Equal(t, 2, all.Recall(store.Lease{Lane: other, Epoch: 1}).Len())
}
