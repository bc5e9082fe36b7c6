package deliveries

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

var leaseFacts = []kit.Fact{
	{"a new lane begins at the oldest row", newLane},
	{"a lease that has not expired keeps others out", heldLease},
	{"a lease expires by the clock", expiringLease},
	{"the next owner of an expired lease continues at its cursor", takeover},
	{"a released lane is free at once", release},
	{"releasing a lost lease affects no other forwarder", releaseLost},
	{"of many simultaneous requests one gets the lease", leaseRace},
	{"a forwarder that lost the answer leases its lane again", leaseAgain},
	{"a lane of a different number of lanes is refused", otherLanes},
	{"a lease has the revision of the parked deliveries", leaseRevision},
}

func newLane(t *testing.T, o *kit.Outbox) {
	lease := o.Hold(t, "mail")
	require.Equal(t, kit.Lane("mail"), lease.Lane)
	require.Equal(t, "w1", lease.Owner)
	require.Positive(t, lease.Epoch)
	require.Nil(t, lease.Position)
	require.Empty(t, lease.Settled)
}

func heldLease(t *testing.T, o *kit.Outbox) {
	two := store.Lanes("mail", 2)
	_ = o.HoldLane(t, two[0], "w1")

	_, err := o.Acquire(t.Context(), two[0], "w2", time.Hour)
	require.ErrorIs(t, err, store.ErrLeaseHeld)
	_ = o.HoldLane(t, two[1], "w2")
	_ = o.HoldLane(t, kit.Lane("events"), "w2")
}

func expiringLease(t *testing.T, o *kit.Outbox) {
	first, err := o.Acquire(t.Context(), kit.Lane("mail"), "w1", 30*time.Millisecond)
	require.NoError(t, err)
	var second store.Lease
	eventually(t, func() bool {
		second, err = o.Acquire(t.Context(), kit.Lane("mail"), "w2", time.Hour)
		if err != nil {
			require.ErrorIs(t, err, store.ErrLeaseHeld)
		}
		return err == nil
	}, "the lease of 30ms expires")
	require.Greater(t, second.Epoch, first.Epoch)
}

func takeover(t *testing.T, o *kit.Outbox) {
	want := kit.Several(4)
	o.Publish(t, want...)
	page := o.Page(t, 2)
	first := o.Hold(t, "mail")
	o.Write(t, first, func(c *store.Checkpoint) {
		c.Position, c.Settled = page.End, store.OffsetRanges(page.Envelopes[1].Offset+2)
	})
	expireLeases(t, o)

	second := o.HoldLane(t, kit.Lane("mail"), "w2")
	require.Greater(t, second.Epoch, first.Epoch)
	require.Equal(t, "w2", second.Owner)
	require.Equal(t, store.OffsetRanges(page.Envelopes[1].Offset+2), second.Settled)
	got, _ := o.Read(t, second.Position, kit.All, 10)
	require.Equal(t, kit.IDs(want[2:]), kit.IDs(got))
}

func release(t *testing.T, o *kit.Outbox) {
	first := o.Hold(t, "mail")
	require.NoError(t, o.Release(t.Context(), first))
	second := o.HoldLane(t, kit.Lane("mail"), "w2")
	require.Greater(t, second.Epoch, first.Epoch)
}

func releaseLost(t *testing.T, o *kit.Outbox) {
	first := o.Hold(t, "mail")
	expireLeases(t, o)
	second := o.Hold(t, "mail") // the same owner, after a restart
	require.NoError(t, o.Release(t.Context(), first))
	_, err := o.Acquire(t.Context(), kit.Lane("mail"), "w2", time.Hour)
	require.ErrorIs(t, err, store.ErrLeaseHeld)
	o.Write(t, second, func(*store.Checkpoint) {})

	require.NoError(t, o.Release(t.Context(), second))
	require.NoError(t, o.Release(t.Context(), second), "twice")
}

func leaseRace(t *testing.T, o *kit.Outbox) {
	var (
		wg   sync.WaitGroup
		won  atomic.Int32
		lost = make(chan error, 8)
	)
	for i := range cap(lost) {
		wg.Go(func() {
			if _, err := o.Acquire(t.Context(), kit.Lane("mail"), fmt.Sprint("w", i), time.Hour); err != nil {
				lost <- err
				return
			}
			won.Add(1)
		})
	}
	wg.Wait()
	close(lost)
	require.EqualValues(t, 1, won.Load())
	for err := range lost {
		require.True(t, errors.Is(err, store.ErrLeaseHeld), err)
	}
}

func leaseAgain(t *testing.T, o *kit.Outbox) {
	first := o.Hold(t, "mail")
	second := o.HoldLane(t, kit.Lane("mail"), first.Owner)
	require.Greater(t, second.Epoch, first.Epoch)
	err := o.Checkpoint(t.Context(), store.Checkpoint{Lease: first, TTL: time.Hour})
	require.ErrorIs(t, err, store.ErrLeaseLost, "only one of the two counts")
}

func otherLanes(t *testing.T, o *kit.Outbox) {
	first := o.HoldLane(t, store.Lanes("mail", 2)[0], "w1")
	before := o.DumpAll(t)
	for _, count := range []int{1, 3} {
		for _, l := range store.Lanes("mail", count) {
			_, err := o.Store.Acquire(t.Context(), l, "w2", time.Hour)
			require.ErrorIs(t, err, store.ErrLanes, "lane %d of %d", l.Number, count)
		}
	}
	require.Equal(t, before, o.DumpAll(t))
	o.Write(t, first, func(*store.Checkpoint) {})
}

func leaseRevision(t *testing.T, o *kit.Outbox) {
	o.Hold(t, "web")
	lease := o.Hold(t, "mail")
	require.Zero(t, lease.Revision)
	o.Write(t, lease, func(c *store.Checkpoint) { c.Park = []store.Parked{kit.Dead(1, "")} })
	require.Zero(t, o.Hold(t, "mail").Revision, "only people's actions raise the revision")
	require.Equal(t, 1, o.RequeueAll(t, store.ParkedFilter{Sink: "mail"}, 10))
	membership := o.Members(t)
	require.Positive(t, membership.Lanes[0].Revision)
	require.Equal(t, membership.Lanes[0].Revision, o.Hold(t, "mail").Revision)
	require.Zero(t, o.Hold(t, "web").Revision)
}

// expireLeases lets all leases expire.
func expireLeases(t *testing.T, o *kit.Outbox) {
	t.Helper()
	o.Exec(t, `UPDATE outbox_cursors SET lease_until = {2000-01-01T00:00:00Z}`)
}

// eventually waits up to a minute until ask returns true.
func eventually(t *testing.T, ask func() bool, what string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for tick := time.NewTicker(time.Millisecond); !ask(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
