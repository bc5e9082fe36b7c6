package forwarder_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

func TestAMemberThatFailsByItselfIsDeadAlone(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &collector{}
		to1 := map[string]forwarder.Sink{"sink": {Sink: s, Collect: byRecipient}}
		f := o.start(to1, route.Routes{"*": route.To("sink")})
		is, fails, passesBy := to("ann", "1", "is"), to("ann", "2", "fails"), to("ann", "3", "passes by")
		is.Payload, fails.Payload, passesBy.Payload = []byte(`{"n":{"x":7}}`), []byte(`{"n":"7"}`), []byte(`{"n":{"x":1}}`)
		o.insert(is, fails, passesBy)
		f.flush()
		f.end()
		f = o.start(to1, route.Routes{"*": {route.Rule{Sink: "sink", When: "payload.n.x > 3"}}})
		pass(2 * time.Minute)
		require.Equal(t, []string{"ann: is"}, s.collected())
		require.Equal(t, []string{"fails dead"}, o.texts(`SELECT id || ' ' || state FROM outbox_parked`))
		stats := f.Stats()[0]
		require.Equal(t, []int64{1, 1, 1}, []int64{stats.Delivered, stats.Dead, stats.PassedBy})
	})
}

func TestAReplayIsCollected(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := &collector{}
		f := o.one(forwarder.Sink{Sink: s, Collect: byRecipient}, manyLanes(2))
		for i := range 5 {
			o.insert(to("ann", fmt.Sprint(i%2), fmt.Sprint("a", i)))
		}
		f.flush()
		pass(2 * time.Minute)
		require.Equal(t, 5, newOperator(o).replay(store.ReplayQuery{}, 1000))
		f.Wake()
		pass(5 * time.Minute)
		require.Equal(t, []string{"ann: a0 a1 a2 a3 a4", "ann: a0 a1 a2 a3 a4"}, s.collected())
		require.NotEqual(t, s.ids[0], s.ids[1])
	})
}

func TestAReplayOfTheNewestDeliversTheFirstOfAKeyAndThenTheNewest(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := &script{}
		f := o.one(forwarder.Sink{Sink: s, Collect: forwarder.Collect{Keep: forwarder.KeepNewest, Wait: 10 * time.Second}})
		o.append("t", "a", numbered("v", 250)...)
		f.flush()
		pass(time.Minute)
		require.Len(t, s.given(), 1)
		require.Equal(t, 250, newOperator(o).replay(store.ReplayQuery{}, 1000))
		f.Wake()
		pass(5 * time.Minute)
		v := numbered("v", 250)
		require.Equal(t, []string{v[0], v[100], v[200], v[249]}, s.given(), "the table is read in parts")
		require.Empty(t, o.parked())
	})
}

func TestWhatWasDueWhileTheSinkWasPausedGoesWithResume(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := &collector{}
		f := o.one(forwarder.Sink{Sink: s, Collect: byRecipient}, lookEachSecond)
		o.insert(to("ann", "1", "a1"))
		f.flush()
		p := newOperator(o)
		p.pause(true)
		oneLook()
		o.insert(to("ann", "1", "a2"))
		pass(time.Hour)
		require.Empty(t, s.collected())
		p.pause(false)
		oneLook()
		together := "ann: a1 a2" // if a2 was read before what was due was closed
		first := s.collected()
		require.Contains(t, [][]string{{"ann: a1"}, {together}}, first)
		pass(2 * time.Minute)
		if first[0] != together {
			require.Equal(t, []string{"ann: a2"}, s.collected())
		}
		require.Empty(t, s.collected())
		require.Empty(t, o.parked())
	})
}

func TestAnotherNumberOfLanesLeavesCollectionsAsTheyAre(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := &collector{}
		f := o.one(forwarder.Sink{Sink: s, Collect: byRecipient}, manyLanes(2))
		for i := range 6 {
			o.insert(to(fmt.Sprint("p", i%3), fmt.Sprint(i), fmt.Sprint("a", i)))
		}
		f.flush()
		f.end()
		o.one(forwarder.Sink{Sink: s, Collect: byRecipient}, manyLanes(5))
		pass(5 * time.Minute)
		require.ElementsMatch(t, []string{"p0: a0 a3", "p1: a1 a4", "p2: a2 a5"}, s.collected())
	})
}

func TestAnotherRuleAppliesToWhatIsDueLater(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := &collector{refuse: func(*sinks.Collection) error { return errors.New("503") }}
		all := forwarder.Sink{Sink: s, Collect: byRecipient, Retry: forwarder.Retry{Initial: time.Hour}}
		f := o.one(all)
		o.insert(to("ann", "1", "a1"), to("ann", "2", "a2"))
		f.flush()
		pass(2 * time.Minute)
		o.insert(to("ann", "1", "a3"), to("ann", "2", "a4"))
		f.flush()
		f.end()
		require.Equal(t, []string{"ann: a1 a2"}, s.collected())
		newest := all
		newest.Collect.Keep = forwarder.KeepNewest
		o.one(newest)
		pass(4 * time.Hour)
		require.Equal(t, []string{"a2", "a4"}, s.given())
		require.Empty(t, s.collected())
	})
}

func TestTheNewestIsTheLastInTheLog(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		for maxWait, given := range map[time.Duration][]string{time.Minute: {"scheduled", "v1"}, time.Hour: {"v1"}} {
			s := &script{}
			f := o.one(forwarder.Sink{Sink: s, Collect: forwarder.Collect{Keep: forwarder.KeepNewest, Wait: 10 * time.Second, MaxWait: maxWait}})
			o.schedule("t", "a", "scheduled", time.Now().Add(5*time.Second))
			f.publish("t", "a", "v1")
			pass(time.Minute)
			require.Equal(t, given, s.given(), "max_wait %s", maxWait)
			f.end()
		}
	})
}

func TestACancelledMemberIsNotCollected(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		intoTheFuture()
		s := &collector{}
		f := o.one(forwarder.Sink{Sink: s, Collect: byRecipient})
		in, at := to("ann", "1", "in"), to("ann", "1", "cancelled")
		at.DeliverAt = time.Now().Add(30 * time.Second)
		o.insert(in, at)
		f.flush()
		require.Equal(t, 1, o.cancel("", "cancelled"))
		require.Zero(t, o.cancel("", "in"), "a member has no time before which it can be cancelled")
		pass(10 * time.Minute)
		require.Equal(t, []string{"ann: in"}, s.collected())
		require.Empty(t, o.parked())
	})
}

func TestHooksGetEachMember(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &collector{}
		s.refuse = func(c *sinks.Collection) error {
			if c.Group == "bob" {
				return sinks.Permanent(errors.New("400"))
			}
			return nil
		}
		var mended atomic.Bool
		f := o.one(forwarder.Sink{Sink: s, Collect: byRecipient, Hooks: noted(o, func(hook string) error {
			if !mended.Load() && hook == "delivered" {
				return errors.New("no such table")
			}
			return nil
		})})
		o.insert(to("ann", "1", "a1"), to("ann", "2", "a2"), to("bob", "1", "b1"), to("bob", "2", "b2"))
		f.flush()
		pass(2 * time.Minute)
		require.Equal(t, []string{"ann: a1 a2", "bob: b1 b2"}, slices.Sorted(slices.Values(s.collected())))
		require.Equal(t, []string{"sink settling a1", "sink settling a2", "sink dead b1", "sink dead b2"}, o.parked())
		mended.Store(true)
		pass(10 * time.Minute)
		require.Equal(t, []string{"dead b1 dead 400", "dead b2 dead 400", "delivered a1", "delivered a2"}, slices.Sorted(slices.Values(o.noted())))
		require.Equal(t, []string{"sink dead b1", "sink dead b2"}, o.parked())
		require.Empty(t, s.collected(), "it was delivered")
		require.Zero(t, value[int](o, `SELECT count(*) FROM outbox_collections`))
	})
}

func TestMembersOutliveTheirRowsOfTheLog(t *testing.T) {
	onlySQLite(t, func(t *testing.T, o *outbox) {
		s := &collector{}
		f := o.one(forwarder.Sink{Sink: s, Collect: forwarder.Collect{By: "metadata.recipient", Wait: 2 * time.Hour}})
		o.insert(to("ann", "1", "a1"), to("ann", "2", "a2"))
		f.flush()
		o.exec(`DELETE FROM outbox`)
		pass(3 * time.Hour)
		require.Equal(t, []string{"ann: a1 a2"}, s.collected())
	})
}

func TestACollectionIsNotClosedOutsideOfTheHours(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &collector{}
		o.insert(to("ann", "1", "a1"), to("bob", "1", "b1"))
		f := o.one(forwarder.Sink{Sink: s, Hours: byDay, Collect: byRecipient}, manyLanes(2))
		f.flush()
		until(opened.Add(-10 * time.Minute))
		o.insert(to("ann", "2", "a2"))
		soon := to("ann", "1", "urgent")
		soon.Metadata["urgent"] = "true"
		o.insert(soon)
		f.flush()
		pass(5 * time.Minute)
		require.Equal(t, []string{"urgent"}, s.given(), "it goes alone")
		require.Empty(t, s.collected())
		require.Equal(t, []string{"sink collecting a1", "sink collecting b1", "sink collecting a2"}, o.parked())
		require.Equal(t, 3, value[int](o, `SELECT count(*) FROM outbox_parked WHERE collection = ''`))
		until(opened.Add(time.Minute))
		require.Equal(t, []string{"ann: a1 a2", "bob: b1"}, slices.Sorted(slices.Values(s.collected())))
		require.Empty(t, o.parked())
	})
}
