package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

func TestTheHookForAMemberThatIsDeadByItselfIsCalledAgain(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		for _, ids := range []string{"alone", "with another"} {
			s := &collector{}
			var calls, dead []string
			sink := forwarder.Sink{Sink: s, Collect: byRecipient}
			f := o.start(map[string]forwarder.Sink{"sink": sink}, route.Routes{"*": route.To("sink")})
			is, fails := to("ann", "1", ids+" is"), to("ann", "2", ids+" fails")
			is.Payload, fails.Payload = []byte(`{"n":{"x":7}}`), []byte(`{"n":"7"}`)
			o.insert(fails)
			if ids != "alone" {
				o.insert(is)
			}
			f.flush()
			f.end()
			sink.Hooks.Dead = func(_ context.Context, _ *sql.Tx, all []event.Parked) error {
				for _, p := range all {
					calls = append(calls, p.ID)
				}
				if len(calls) < 3 {
					return errors.New("the hook fails")
				}
				for _, p := range all {
					dead = append(dead, p.ID)
				}
				return nil
			}
			f = o.start(map[string]forwarder.Sink{"sink": sink}, route.Routes{"*": {route.Rule{Sink: "sink", When: "payload.n.x > 3"}}})
			pass(10 * time.Minute)
			require.Equal(t, []string{ids + " fails"}, dead)
			f.end()
		}
	})
}

func TestTheNextCollectionOfAKeyIsDeliveredWhenAPersonDiscardsTheOneBefore(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &collector{refuse: func(c *sinks.Collection) error {
			if c.Members[0].ID == "v1" {
				return errors.New("503")
			}
			return nil
		}}
		f := o.one(forwarder.Sink{Sink: s, Retry: forwarder.Retry{Initial: 100 * time.Hour, Max: 100 * time.Hour}, Collect: forwarder.Collect{Wait: time.Minute}})
		f.publish("t", "a", "v1")
		pass(2 * time.Minute)
		f.publish("t", "a", "v2")
		pass(2 * time.Minute)
		require.Equal(t, []string{"a: v1"}, s.collected())
		p := newOperator(o)
		_, err := p.Discard(t.Context(), store.ParkedBatch{Action: p.begin(), Filter: store.ParkedFilter{Sink: "sink", ID: "v1"}, Limit: 1000})
		require.NoError(t, err)
		pass(time.Hour)
		require.Equal(t, []string{"a: v2"}, s.collected())
	})
}

func TestMembersOfAForwarderThatStillHasTheRuleAreDelivered(t *testing.T) {
	onlyPostgres(t, func(t *testing.T, o *outbox) {
		s := &collector{}
		f := o.one(forwarder.Sink{Sink: s}, manyLanes(2), leased(15*time.Second), func(c *forwarder.Config) { c.Name = "new" })
		pass(10 * time.Minute)
		old := o.one(forwarder.Sink{Sink: s, Collect: byRecipient}, manyLanes(2), leased(15*time.Second), func(c *forwarder.Config) { c.Name = "old" })
		pass(10 * time.Minute)
		for i := range 20 {
			o.insert(to(string(rune('a'+i)), string(rune('a'+i)), string(rune('a'+i))))
		}
		f.Wake()
		old.Wake()
		pass(10 * time.Second)
		old.end()
		pass(2 * time.Hour)
		require.Empty(t, o.parked())
	})
}

func TestWhatIsNoLongerForTheSinkSupersedesNothing(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: failsOnce(errors.New("503"), "v1")}
		to1 := map[string]forwarder.Sink{"sink": {Sink: s, Retry: forwarder.Retry{Initial: 10 * time.Minute}, Collect: forwarder.Collect{Keep: forwarder.KeepNewest, Wait: time.Second}}}
		f := o.start(to1, route.Routes{"*": route.To("sink")})
		for i, payload := range []string{`{"n": 7}`, `{"n": 7}`, `{"n": 1}`} {
			o.insert(notification.Envelope{ID: fmt.Sprint("v", i+1), Type: "t", Key: "a", Payload: []byte(payload)})
			f.flush()
			pass(5 * time.Second)
		}
		f.end()
		require.Equal(t, []string{"v1 retrying", "v2 blocked", "v3 blocked"}, o.texts(`SELECT id || ' ' || state FROM outbox_parked ORDER BY id`))
		o.start(to1, route.Routes{"*": {route.Rule{Sink: "sink", When: "payload.n > 3"}}})
		pass(time.Hour)
		require.Equal(t, []string{"v1", "v1", "v2"}, s.given())
		require.Empty(t, o.parked())
	})
}

func TestWhatWasDeadByItselfComesBackWithAnotherId(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &collector{}
		to1 := map[string]forwarder.Sink{"sink": {Sink: s, Collect: byRecipient}}
		f := o.start(to1, route.Routes{"*": route.To("sink")})
		is, fails := to("ann", "1", "is"), to("ann", "2", "fails")
		is.Payload, fails.Payload = []byte(`{"n":{"x":7}}`), []byte(`{"n":"7"}`)
		o.insert(is, fails)
		f.flush()
		f.end()
		f = o.start(to1, route.Routes{"*": {route.Rule{Sink: "sink", When: "payload.n.x > 3"}}})
		pass(2 * time.Minute)
		require.Equal(t, []string{"ann: is"}, s.collected())
		f.end()
		o.start(to1, route.Routes{"*": route.To("sink")})
		newOperator(o).requeue(store.ParkedFilter{})
		pass(10 * time.Minute)
		require.Equal(t, []string{"ann: fails"}, s.collected())
		require.NotEqual(t, s.ids[0], s.ids[1], "the destination has taken the other one with that id")
	})
}

func TestAMemberThatFailedByItselfIsNotRememberedAsDelivered(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s, db := &collector{}, newForgetful(o)
		to1 := map[string]forwarder.Sink{"sink": {Sink: s, Collect: byRecipient}}
		f := o.start(to1, route.Routes{"*": route.To("sink")}, over(db), leased(15*time.Second))
		is, fails := to("ann", "1", "is"), to("ann", "2", "fails")
		is.Payload, fails.Payload = []byte(`{"n":{"x":7}}`), []byte(`{"n":"7"}`)
		o.insert(is, fails)
		f.flush()
		f.end()
		o.start(to1, route.Routes{"*": {route.Rule{Sink: "sink", When: "payload.n.x > 3"}}}, over(db), leased(15*time.Second))
		s.refuse = func(*sinks.Collection) error {
			db.fails.Store(true)
			return nil
		}
		for len(s.collected()) == 0 {
			pass(time.Second)
		}
		o.expireLeases()
		s.refuse = nil
		db.works()
		pass(10 * time.Minute)
		require.Equal(t, []string{"fails dead"}, o.texts(`SELECT id || ' ' || state FROM outbox_parked`))
	})
}

func TestReleasedMembersKeepTheOrderOfTheirKeys(t *testing.T) {
	onlyPostgres(t, func(t *testing.T, o *outbox) {
		s := &collector{}
		f := o.one(forwarder.Sink{Sink: s, Collect: byRecipient}, manyLanes(2))
		for k := range 8 {
			o.insert(to(fmt.Sprint("p", k), fmt.Sprint("k", k), fmt.Sprint("m", k)), to(fmt.Sprint("p", k), fmt.Sprint("o", k), fmt.Sprint("o", k)))
		}
		f.flush()
		f.end()
		s.answer = func(ctx context.Context, d *notification.Delivery) error {
			if d.Attempt == 1 && d.ID[0] != 'w' {
				return errors.New("503")
			}
			return takesTime(ctx, 50*time.Second)
		}
		f = o.one(forwarder.Sink{Sink: s, Timeout: 2 * time.Minute, Retry: forwarder.Retry{Initial: 10 * time.Minute, Max: 10 * time.Minute}, Parallelism: forwarder.Parallelism{Threshold: 100}}, manyLanes(2))
		pass(2 * time.Minute) // the single members have failed
		for k := range 8 {
			o.insert(to("x", fmt.Sprint("k", k), fmt.Sprint("v", k)))
		}
		f.flush()
		for k := range 8 {
			o.insert(to("x", fmt.Sprint("k", k), fmt.Sprint("w", k)))
		}
		f.flush()
		pass(2 * time.Hour)
		for id, n := range s.times() {
			require.Equal(t, 1, n, id)
		}
		require.Zero(t, s.overlaps)
		require.Empty(t, o.parked())
		f.end()
	})
}
