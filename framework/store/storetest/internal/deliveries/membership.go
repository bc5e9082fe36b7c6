package deliveries

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/store/storetest/internal/kit"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

var membershipFacts = []kit.Fact{
	{"a sink's cursors are created together, once", cutOnce},
	{"a request for another number of lanes leaves the cursors and records the number", cutWanted},
	{"the membership lists the owner of each lane, how long its lease lasts, and how long a lane has been free", membershipLanes},
	{"the membership lists the live forwarders", membershipMembers},
	{"a forwarder has the times of its first and last heartbeat", membershipTimes},
	{"lanes are cut again at the position that they share", recut},
	{"lanes are cut again only if all are held and share a position", recutRefused},
}

// lanesOf returns a sink's lanes as text.
func lanesOf(t *testing.T, o *kit.Outbox, sink string) (lanes []string) {
	t.Helper()
	for _, l := range o.Members(t).Lanes {
		if l.Lane.Sink == sink {
			require.Equal(t, store.Lanes(sink, l.Lane.Of)[l.Lane.Number], l.Lane)
			lanes = append(lanes, fmt.Sprintf("%d/%d wanted %d owner %q", l.Lane.Number, l.Lane.Of, l.Wanted, l.Owner))
		}
	}
	return lanes
}

func cutOnce(t *testing.T, o *kit.Outbox) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if err := o.Cut(t.Context(), "mail", 1+i%4); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	membership := o.Members(t)
	require.NotEmpty(t, membership.Lanes)
	for i, l := range membership.Lanes {
		require.Equal(t, store.Lanes("mail", len(membership.Lanes))[i], l.Lane, "in every order of the calls")
		require.Equal(t, membership.Lanes[0].Wanted, l.Wanted)
	}
}

func cutWanted(t *testing.T, o *kit.Outbox) {
	require.NoError(t, o.Cut(t.Context(), "mail", 2))
	require.NoError(t, o.Cut(t.Context(), "events", 1))
	lease := o.HoldLane(t, store.Lanes("mail", 2)[1], "w1")
	require.NoError(t, o.Cut(t.Context(), "mail", 3))
	require.Equal(t, []string{`0/2 wanted 3 owner ""`, `1/2 wanted 3 owner "w1"`}, lanesOf(t, o, "mail"))
	require.Equal(t, []string{`0/1 wanted 0 owner ""`}, lanesOf(t, o, "events"))
	o.Write(t, lease, func(*store.Checkpoint) {})
	require.NoError(t, o.Cut(t.Context(), "mail", 2), "back to the number it has")
	require.Equal(t, []string{`0/2 wanted 0 owner ""`, `1/2 wanted 0 owner "w1"`}, lanesOf(t, o, "mail"))
}

func membershipLanes(t *testing.T, o *kit.Outbox) {
	state := func() store.LaneState {
		membership := o.Members(t)
		require.Len(t, membership.Lanes, 1)
		return membership.Lanes[0]
	}
	require.NoError(t, o.Cut(t.Context(), "mail", 1))
	eventually(t, func() bool { return state().Free > 0 }, "a new lane is free")
	lease := o.Hold(t, "mail")
	held := state()
	require.Equal(t, "w1", held.Owner)
	require.Zero(t, held.Free)
	require.Greater(t, held.Left, 55*time.Minute, "of the lease of an hour")
	require.LessOrEqual(t, held.Left, time.Hour)
	expireLeases(t, o)
	require.Empty(t, state().Owner)
	require.Zero(t, state().Left)
	require.Greater(t, state().Free, 24*time.Hour, "since the lease ran out")
	require.NoError(t, o.Release(t.Context(), lease))
	require.Empty(t, state().Owner)
	require.Less(t, state().Free, time.Hour, "since it was released")
}

func membershipMembers(t *testing.T, o *kit.Outbox) {
	members := func() []store.Member {
		membership := o.Members(t)
		for i, m := range membership.Members {
			require.False(t, m.Since.IsZero() || m.SeenAt.Before(m.Since), "%s since %s, seen %s", m.Owner, m.Since, m.SeenAt)
			membership.Members[i].Since, membership.Members[i].SeenAt = time.Time{}, time.Time{}
		}
		return membership.Members
	}
	a, b := store.Member{Owner: "a", Sinks: []string{"events", "mail"}}, store.Member{Owner: "b", Sinks: []string{"mail"}}
	require.NoError(t, o.Heartbeat(t.Context(), b, time.Hour))
	require.NoError(t, o.Heartbeat(t.Context(), a, time.Hour))
	require.Equal(t, []store.Member{a, b}, members())
	a.Sinks = []string{"mail"}
	a.Running = store.Running{Version: "shop v1.2.3", Settings: "0a1b2c", Checkpoint: 15 * time.Millisecond,
		Sinks: []store.SinkRunning{{Sink: "events", Threshold: 16}, {Sink: "mail", Delivered: 7, Failed: 2, Dead: 1, PerSecond: 0.25, InFlight: 1, Threshold: 4, Pending: 3,
			BreakerOpen: true, Cause: `"refused" \ <by> it`, Hour: []store.Done{{5, 1}, {}, {2, 2}}}}}
	require.NoError(t, o.Heartbeat(t.Context(), a, 2*time.Hour), "again")
	require.Equal(t, []store.Member{a, b}, members())

	o.Exec(t, `UPDATE outbox_forwarders SET live_until = {2000-01-01T00:00:00Z} WHERE owner = 'b'`)
	require.Equal(t, []store.Member{a}, members())
	require.NoError(t, o.Heartbeat(t.Context(), a, time.Hour))
	require.NotContains(t, o.Dump(t, `SELECT owner FROM outbox_forwarders`), "owner=b", "expired members are removed")
	departed := func() []store.Member {
		ended, err := o.Departed(t.Context())
		require.NoError(t, err)
		return ended
	}
	require.Empty(t, departed())
	require.NoError(t, o.Leave(t.Context(), "a"))
	require.NoError(t, o.Leave(t.Context(), "a"), "twice")
	require.Empty(t, members())
	require.Len(t, departed(), 1)
	require.Equal(t, "a", departed()[0].Owner)
	require.Equal(t, a.Running, departed()[0].Running, "its last figures stay for an hour")
	a.Version = "shop v1.2.4"
	require.NoError(t, o.Heartbeat(t.Context(), a, time.Hour), "it comes back")
	require.NoError(t, o.Leave(t.Context(), "a"))
	require.Equal(t, a.Running, departed()[0].Running)
	require.Empty(t, members())
}

func membershipTimes(t *testing.T, o *kit.Outbox) {
	a := store.Member{Owner: "a", Sinks: []string{"mail"}}
	require.NoError(t, o.Heartbeat(t.Context(), a, time.Hour))
	o.Exec(t, `UPDATE outbox_forwarders SET since = {2001-02-03T04:05:06Z}, seen_at = {2001-02-03T04:05:07Z}`)
	require.NoError(t, o.Heartbeat(t.Context(), a, time.Hour), "again")
	membership := o.Members(t)
	require.Len(t, membership.Members, 1)
	require.Equal(t, time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC), membership.Members[0].Since.UTC())
	require.WithinDuration(t, time.Now(), membership.Members[0].SeenAt, time.Hour)
}

func recut(t *testing.T, o *kit.Outbox) {
	old := kit.Several(20)
	for _, e := range old {
		o.Publish(t, e)
	}
	require.NoError(t, o.Cut(t.Context(), "mail", 2))
	require.NoError(t, o.Cut(t.Context(), "events", 1))
	target := o.Target(t)
	require.NoError(t, o.Release(t.Context(), o.HoldLane(t, store.Lanes("mail", 2)[1], "w1")), "one lane has a higher epoch")
	leases := o.HoldLanes(t, "mail", 2)
	for _, lease := range leases {
		page := kit.NextPage(t, o.Reader(t, nil, kit.OfLane(lease.Lane)), target, 100)
		require.True(t, page.CaughtUp)
		o.Write(t, lease, func(c *store.Checkpoint) { c.Position = page.End })
	}
	later := kit.Envelope("order.placed", "")
	o.Publish(t, later)
	require.NoError(t, o.Cut(t.Context(), "mail", 3))
	require.NoError(t, o.Recut(t.Context(), "mail", leases))
	require.Equal(t, []string{`0/3 wanted 0 owner ""`, `1/3 wanted 0 owner ""`, `2/3 wanted 0 owner ""`}, lanesOf(t, o, "mail"))
	require.Equal(t, []string{`0/1 wanted 0 owner ""`}, lanesOf(t, o, "events"))

	err := o.Checkpoint(t.Context(), store.Checkpoint{Lease: leases[0], TTL: time.Hour})
	require.ErrorIs(t, err, store.ErrLeaseLost, "the old leases have ended")
	var got []string
	for _, lease := range o.HoldLanes(t, "mail", 3) {
		for _, before := range leases {
			require.Greater(t, lease.Epoch, before.Epoch)
		}
		require.NoError(t, o.Release(t.Context(), leases[0]), "has no effect")
		envelopes, _ := o.Read(t, lease.Position, kit.OfLane(lease.Lane), 100)
		got = append(got, kit.IDs(envelopes)...)
	}
	require.Equal(t, []string{later.ID}, got, "none of %v again", kit.IDs(old))
}

func recutRefused(t *testing.T, o *kit.Outbox) {
	o.Publish(t, kit.Several(5)...)
	require.NoError(t, o.Cut(t.Context(), "mail", 2))
	leases := o.HoldLanes(t, "mail", 2)
	require.ErrorIs(t, o.Recut(t.Context(), "mail", leases), store.ErrLanes, "no other number is requested")
	require.NoError(t, o.Cut(t.Context(), "mail", 1))

	before := o.DumpAll(t)
	require.ErrorIs(t, o.Recut(t.Context(), "mail", leases[:1]), store.ErrLeaseLost)
	stale := leases[1]
	stale.Epoch--
	require.ErrorIs(t, o.Recut(t.Context(), "mail", []store.Lease{leases[0], stale}), store.ErrLeaseLost)
	require.Equal(t, before, o.DumpAll(t))

	page := o.Page(t, 100)
	o.Write(t, leases[0], func(c *store.Checkpoint) { c.Position = page.End })
	before = o.DumpAll(t)
	require.ErrorIs(t, o.Recut(t.Context(), "mail", leases), store.ErrNotLevel, "one has no position yet")
	require.Equal(t, before, o.DumpAll(t))
	o.Write(t, leases[1], func(c *store.Checkpoint) { c.Position, c.Settled = page.End, store.OffsetRanges(100) })
	require.ErrorIs(t, o.Recut(t.Context(), "mail", leases), store.ErrNotLevel, "one has settled ahead")
	o.Write(t, leases[1], func(c *store.Checkpoint) { c.Position = page.End })
	require.NoError(t, o.Recut(t.Context(), "mail", leases))
}
