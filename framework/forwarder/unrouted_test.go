package forwarder_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
)

func TestDeliveredNotificationsAreNotDeadAfterARestartWithFewerRoutes(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		to := map[string]forwarder.Sink{"sink": {Sink: s}}
		f := o.start(to, route.Routes{"a": route.To("sink"), "b": route.To("sink")})
		f.publish("a", "", "a1", "a2")
		f.publish("b", "", "b1")
		f.end()
		require.ElementsMatch(t, []string{"a1", "a2", "b1"}, s.given())

		f = o.start(to, route.Routes{"b": route.To("sink")})
		f.flush()
		f.publish("a", "", "a3")
		f.end()
		require.Equal(t, []string{"_unrouted dead a3"}, o.parked(), "the notifications before the restart had a route")
		require.Empty(t, s.given())
	})
}

func TestALaneThatOnlySkippedRowsWritesItsPositionAtAGracefulStop(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s, other := &script{}, &script{}
		to := map[string]forwarder.Sink{"sink": {Sink: s}, "other": {Sink: other}}
		f := o.start(to, route.Routes{"a": route.To("sink"), "b": route.To("other")}, func(c *forwarder.Config) { c.Unrouted = forwarder.UnroutedIgnore })
		o.append("a", "", "a1")
		f.publish("c", "", "c1")
		f.end()
		f = o.start(to, route.Routes{"*": route.To("sink", "other")})
		f.flush()
		f.end()
		require.Equal(t, []string{"a1"}, s.given(), "each starts after the rows that it skipped")
		require.Empty(t, other.given())
	})
}

// After a crash the sink _unrouted checks again only the rows that it skipped within the last seconds.
func TestTheUnroutedPositionIsWrittenSoon(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		to := map[string]forwarder.Sink{"sink": {Sink: s}}
		f := o.start(to, route.Routes{"a": route.To("sink"), "b": route.To("sink")})
		f.flush()
		f.publish("a", "", "a1")
		time.Sleep(3 * time.Second)
		o.loseLeases()
		f.abandon()
		f = o.start(to, route.Routes{"b": route.To("sink")})
		f.flush()
		f.end()
		require.Empty(t, o.parked())
	})
}

// dueNow makes due what a person's action made due by the database's clock, which is not in the bubble.
func (o *outbox) dueNow() {
	o.t.Helper()
	o.exec(`UPDATE outbox_parked SET due_at = '2000-01-01T00:00:00.000000Z' WHERE state = 'retrying'`)
}

// reroute delivers what is parked without a route, as a person does.
func (o *outbox) reroute(routes route.Routes) {
	o.t.Helper()
	table, err := route.New(routes, []string{"a", "b"}, nil)
	require.NoError(o.t, err)
	a := admin.New(o.store.(admin.Store), "test")
	p, err := a.Reroute(o.t.Context(), admin.Filter{}, table)
	require.NoError(o.t, err)
	_, err = p.Run(o.t.Context(), nil)
	require.NoError(o.t, err)
	require.Zero(o.t, p.Left)
	o.dueNow()
}

// A program is deployed after the one that publishes for it.
func TestWhatAForwarderThatStartsLaterRoutesIsNotUnrouted(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		a, b := &script{}, &script{}
		team := o.start(map[string]forwarder.Sink{"a": {Sink: a}}, route.Routes{"order.*": route.To("a")}, called("team"))
		team.flush()
		o.append("mail.sent", "k", "m1")
		o.append("mail.sent", "k", "m2")
		team.flush()
		require.Equal(t, []string{"_unrouted dead m1", "_unrouted dead m2"}, o.parked())
		o.exec(`UPDATE outbox_parked SET first_parked_at = '2100-01-01T00:00:00.000000Z'`) // the clock of the database is later than that of the test
		later := o.start(map[string]forwarder.Sink{"b": {Sink: b, Start: store.StartNow}}, route.Routes{"mail.*": route.To("b")}, called("later"))
		settle(team, later)
		o.dueNow()
		o.append("mail.sent", "k", "m3")
		settle(team, later)
		require.Equal(t, []string{"m1", "m2", "m3"}, b.given())
		require.Empty(t, o.parked())
	})
}

func TestAllNotificationsWithoutARouteAreParkedAndRerouted(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		a := &script{}
		to := map[string]forwarder.Sink{"a": {Sink: a}}
		f := o.start(to, route.Routes{"order.*": route.To("a")})
		ids := numbered("m", 60)
		for _, id := range ids {
			o.append("mail.sent", id, id)
		}
		f.flush()
		require.Len(t, o.parked(), 60)
		o.exec(`UPDATE outbox_parked SET first_parked_at = '2000-01-01T00:00:00.000000Z'`)
		require.False(t, f.Figures().Sinks[0].BreakerOpen)
		routes := route.Routes{"order.*": route.To("a"), "mail.*": route.To("a")}
		require.NoError(t, f.Reload(t.Context(), to, routes))
		f.flush()
		o.reroute(routes)
		f.Wake()
		pass(10 * time.Minute)
		f.end()
		require.ElementsMatch(t, ids, a.given())
		require.Empty(t, o.parked())
	})
}

// Rows that the sink has skipped, and that _unrouted has not read yet, belong to no one once the
// route is there, unless the change of the routes sees to them.
func TestARouteThatIsAddedLeavesNothingToNobody(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		a := &script{}
		to := map[string]forwarder.Sink{"a": {Sink: a}}
		f := o.start(to, route.Routes{"order.*": route.To("a")})
		f.flush()
		o.pause("_unrouted", true)
		time.Sleep(10 * time.Minute) // its lane is released
		o.append("mail.sent", "", "skipped")
		f.publish("order.placed", "", "o1")
		f.end()
		require.Equal(t, []string{"o1"}, a.given())
		require.Empty(t, o.parked())

		o.append("mail.sent", "", "pending")
		routes := route.Routes{"*": route.To("a")}
		f = o.start(to, routes)
		f.flush()
		o.dueNow()
		pass(10 * time.Minute)
		f.end()
		require.ElementsMatch(t, []string{"pending", "skipped"}, a.given())
		require.Empty(t, o.parked())
	})
}

func TestARouteThatIsRemovedLeavesTheBacklogParked(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		a := &script{}
		to := map[string]forwarder.Sink{"a": {Sink: a}, "b": {Sink: &script{}}}
		f := o.start(to, route.Routes{"order.*": route.To("a", "b"), "mail.*": route.To("a")})
		f.publish("mail.sent", "", "delivered")
		o.pause("a", true)
		time.Sleep(10 * time.Minute)
		o.append("mail.sent", "", "backlog")
		f.publish("order.placed", "", "taken by b")
		f.end()
		f = o.start(to, route.Routes{"order.*": route.To("b")})
		f.flush()
		f.publish("mail.sent", "", "later")
		require.Equal(t, []string{"_unrouted dead backlog", "_unrouted dead later"}, o.parked())
		require.Equal(t, []string{"delivered"}, a.given())

		o.pause("a", false)
		f.end()
		f = o.start(to, route.Routes{"order.*": route.To("b"), "mail.*": route.To("a")})
		f.flush()
		f.end()
		require.ElementsMatch(t, []string{"backlog", "later"}, a.given(), "the sink had not passed them, so it reads them itself")
		require.Empty(t, o.parked())
	})
}

func TestAScheduledNotificationWithoutARouteGoesToTheRouteThatIsAdded(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		for _, pattern := range []string{"*", "mail.*"} {
			a := &script{}
			to := map[string]forwarder.Sink{"a": {Sink: a}}
			f := o.start(to, route.Routes{"order.*": route.To("a")})
			f.flush()
			o.schedule("mail.sent", "k", "m"+pattern, time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
			f.flush()
			require.Equal(t, []string{"_unrouted scheduled m" + pattern}, o.parked())
			require.NoError(t, f.Reload(t.Context(), to, route.Routes{"order.*": route.To("a"), pattern: route.To("a")}))
			f.flush()
			require.Equal(t, []string{"a scheduled m" + pattern}, o.parked())
			f.end()
			o.exec(`DELETE FROM outbox_parked`)
		}
	})
}

// Two forwarders with different routes share an outbox: the one that started last decides what its
// sinks take, and what only the other one has is not unrouted.
func TestForwardersWithDifferentRoutesLeaveNothingToNobody(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		a, b, newer := &script{}, &script{}, &script{}
		old := o.start(map[string]forwarder.Sink{"a": {Sink: a}}, route.Routes{"order.*": route.To("a")}, called("old"))
		old.flush()
		other := o.start(map[string]forwarder.Sink{"b": {Sink: b}}, route.Routes{"mail.*": route.To("b")}, called("other"))
		settle(old, other)
		o.append("order.placed", "", "o1")
		o.append("mail.sent", "", "m1")
		o.append("parcel.lost", "", "p1")
		settle(old, other)
		require.Equal(t, []string{"o1"}, a.given())
		require.Equal(t, []string{"m1"}, b.given())
		require.Equal(t, []string{"_unrouted dead p1"}, o.parked(), "what only the other forwarder routes is not unrouted")

		next := o.start(map[string]forwarder.Sink{"a": {Sink: newer}}, route.Routes{"order.*": route.To("a"), "parcel.*": route.To("a")}, called("next"))
		settle(old, other, next)
		o.append("parcel.lost", "", "p2")
		o.append("order.placed", "", "o2")
		settle(old, other, next)
		require.Equal(t, []string{"o2", "p2"}, slices.Sorted(slices.Values(newer.given())), "the forwarder that started last decides")
		require.Empty(t, a.given())
		next.end()
		o.append("order.placed", "", "o3")
		o.append("parcel.lost", "", "p3")
		settle(old, other)
		require.Equal(t, []string{"o3"}, a.given(), "the routes of the forwarder that is left hold again")
		require.Equal(t, []string{"_unrouted dead p1", "_unrouted dead p3"}, o.parked())
	})
}

// A sink whose forwarder is away keeps its types, and what is published of them waits in the log.
func TestASinkThatIsAwayKeepsItsTypes(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		a, b := &script{}, &script{}
		mails := map[string]forwarder.Sink{"b": {Sink: b}}
		team := o.start(map[string]forwarder.Sink{"a": {Sink: a}}, route.Routes{"order.*": route.To("a")}, called("team"))
		away := o.start(mails, route.Routes{"mail.*": route.To("b")}, called("away"))
		settle(team, away)
		away.end()
		o.append("mail.sent", "", "m1")
		o.append("parcel.lost", "", "p1")
		time.Sleep(time.Hour)
		settle(team)
		require.Equal(t, []string{"_unrouted dead p1"}, o.parked())
		away = o.start(mails, route.Routes{"mail.*": route.To("b")}, called("again"))
		settle(team, away)
		require.Equal(t, []string{"m1"}, b.given())

		require.NoError(t, team.Reload(t.Context(), map[string]forwarder.Sink{"a": {Sink: a}, "b": {Sink: b}}, route.Routes{"order.*": route.To("a"), "mail.*": route.To("b")}))
		away.end()
		settle(team)
		require.NoError(t, team.Reload(t.Context(), map[string]forwarder.Sink{"a": {Sink: a}}, route.Routes{"order.*": route.To("a")}))
		o.append("mail.sent", "", "m2")
		settle(team)
		require.Equal(t, []string{"_unrouted dead m2", "_unrouted dead p1"}, slices.Sorted(slices.Values(o.parked())), "its forwarder has removed it")
	})
}

// countsRoutes counts the changes of what sinks take. It ends those that come without a pause.
type countsRoutes struct {
	forwarder.Store
	calls atomic.Int64
}

func (s *countsRoutes) Route(ctx context.Context, sinks map[string]notification.TypeFilter) (bool, error) {
	if s.calls.Add(1) > 1000 {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return s.Store.Route(ctx, sinks)
}

// The cursors of b are there before it is known what b takes, as when its forwarder has just started or is
// of an earlier version.
func TestWhatIsUnroutedWaitsForAnUnknownSinkWithPauses(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		a, b := &script{}, &script{}
		f := o.start(map[string]forwarder.Sink{"a": {Sink: a}}, route.Routes{"order.*": route.To("a")})
		f.flush()
		f.end()
		_, err := o.store.Cut(t.Context(), "b", 1, store.StartNow)
		require.NoError(t, err)
		o.exec(`UPDATE outbox_cursors SET types = NULL, types_wanted = '{}' WHERE sink = '_unrouted'`)

		counts := &countsRoutes{Store: o.store}
		f = o.start(map[string]forwarder.Sink{"a": {Sink: a}}, route.Routes{"order.*": route.To("a")}, over(counts))
		o.append("order.placed", "", "o1")
		o.append("mail.sent", "", "m1")
		settle(f)
		require.Less(t, counts.calls.Load(), int64(1000))
		require.Equal(t, []string{"o1"}, a.given())
		require.Empty(t, o.parked())

		other := o.start(map[string]forwarder.Sink{"b": {Sink: b}}, route.Routes{"mail.*": route.To("b")}, called("other"))
		settle(f, other)
		require.Equal(t, []string{"m1"}, b.given())
		o.append("parcel.lost", "", "p1")
		settle(f, other)
		require.Equal(t, []string{"_unrouted dead p1"}, o.parked())
	})
}

func called(name string) func(*forwarder.Config) {
	return func(c *forwarder.Config) { c.Name, c.Lease = name, time.Minute }
}

// settle lets forwarders look at the leases several times.
func settle(all ...*engine) {
	for range 20 {
		for _, f := range all {
			f.Wake()
		}
		pass(10 * time.Second)
	}
}

// retyped changes what the sink a takes between a look at its lanes and the first lease of one.
type retyped struct {
	forwarder.Store
	outbox *outbox
	once   sync.Once
}

func (s *retyped) Acquire(ctx context.Context, lane store.Lane, owner string, lease time.Duration) (store.Lease, error) {
	if lane.Sink == "a" {
		s.once.Do(func() { s.outbox.exec(`UPDATE outbox_cursors SET types = '{"prefixes":["parcel."]}' WHERE sink = 'a'`) })
	}
	return s.Store.Acquire(ctx, lane, owner, lease)
}

func TestALaneWhoseTypesChangedBeforeItsLeaseIsReleased(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		a := &script{}
		o.append("order.placed", "", "o1")
		o.append("parcel.lost", "", "p1")
		f := o.start(map[string]forwarder.Sink{"a": {Sink: a}}, route.Routes{"order.*": route.To("a")}, called("test"), over(&retyped{Store: o.store, outbox: o}))
		settle(f)
		require.Equal(t, []string{"o1"}, a.given())
		require.Equal(t, []string{"_unrouted dead p1"}, o.parked())
	})
}
