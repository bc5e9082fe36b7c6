package forwarder_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/sinks"
)

// checking makes a forwarder check notifications: those in wrong have an error.
func checking(wrong map[string]error) func(*forwarder.Config) {
	return func(c *forwarder.Config) {
		c.Check = func(_ context.Context, e *notification.Envelope) error { return wrong[e.ID] }
	}
}

func TestANotificationThatFailsTheCheckIsNotHandedToTheSink(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		o.insert(priced("k", map[string]string{"1": "20", "2": "30", "3": "40"})...)
		o.insert(priced("j", map[string]string{"4": "20", "5": "30", "6": "1"})...)
		f := o.start(map[string]forwarder.Sink{"sink": {Sink: s}}, expensive, checking(map[string]error{
			"2": sinks.Invalid(errors.New("/total is missing")), "4": sinks.Unknown(errors.New("no schema yet")), "6": sinks.Invalid(errors.New("never asked")),
		}))
		f.flush()
		require.Equal(t, []string{"1", "3"}, s.given())
		require.Equal(t, []string{"sink dead 2", "sink retrying 4", "sink blocked 5"}, o.parked(), "6 passes by: no condition holds")
		require.Equal(t, "/total is missing", o.parkedOf("2").LastError)
		require.Zero(t, o.parkedOf("4").Attempt)
		f.end()

		f = o.start(map[string]forwarder.Sink{"sink": {Sink: s}}, expensive)
		pass(5 * time.Minute)
		require.Equal(t, []string{"4", "5"}, s.given(), "once another deployment knows the schema")
		f.end()
	})
}

func TestOfACollectionTheMembersThatFailTheCheckAreDead(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &collector{}
		o.insert(to("ann", "1", "1"), to("ann", "2", "2"), to("ann", "3", "3"), to("bob", "4", "4"), to("bob", "5", "5"))
		f := o.start(map[string]forwarder.Sink{"sink": {Sink: s, Collect: byRecipient}}, route.Routes{"*": route.To("sink")}, checking(map[string]error{
			"2": sinks.Invalid(errors.New("/total is missing")), "4": sinks.Unknown(errors.New("no schema yet")),
		}))
		pass(10 * time.Minute)
		require.Equal(t, []string{"ann: 1 3"}, s.collected())
		require.Contains(t, o.parked(), "sink dead 2")
		require.Contains(t, o.parkedOf("2").LastError, "/total is missing")
		require.Equal(t, "no schema yet", o.parkedOf("4").LastError, "all of bob's wait, in their order")
		f.end()
	})
}

func TestANotificationThatFailsTheCheckReplacesNoOther(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		o.insert(to("ann", "k", "1"), to("ann", "k", "2"), to("ann", "k", "3"))
		f := o.one(forwarder.Sink{Sink: s, Collect: forwarder.Collect{Keep: forwarder.KeepNewest, Wait: time.Minute}}, checking(map[string]error{"3": sinks.Invalid(errors.New("/total is missing"))}))
		pass(10 * time.Minute)
		require.Contains(t, s.given(), "2")
		require.Equal(t, []string{"sink dead 3"}, o.parked())
		f.end()
	})
}

func TestANotificationWithoutARouteIsNotChecked(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		o.insert(notification.Envelope{ID: "1", Type: "other"})
		f := o.start(map[string]forwarder.Sink{"sink": {Sink: &script{}}}, route.Routes{"t": route.To("sink")}, checking(map[string]error{"1": sinks.Unknown(errors.New("no schema yet"))}))
		f.flush()
		require.Equal(t, []string{"_unrouted dead 1"}, o.parked())
		f.end()
	})
}
