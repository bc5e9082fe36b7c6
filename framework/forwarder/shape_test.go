package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/sinks"
)

// priced returns notifications of a key with a price.
func priced(key string, costs map[string]string) []notification.Envelope {
	var all []notification.Envelope
	for _, id := range slices.Sorted(maps.Keys(costs)) {
		all = append(all, notification.Envelope{ID: id, Type: "t", Key: key, Payload: fmt.Appendf(nil, `{"cost": %s, "secret": 1}`, costs[id])})
	}
	return all
}

// expensive is the condition of a price above 10.
var expensive = route.Routes{"*": {{Sink: "sink", When: `payload.cost > 10`}}}

// payloads is a sink that records the payloads it gets.
type payloads struct {
	mu sync.Mutex
	of map[string]string
}

func (p *payloads) take(d *notification.Delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = make(map[string]string)
	}
	p.of[d.ID] = string(d.Payload)
}

func (p *payloads) delivered(_ context.Context, _ *sql.Tx, all []forwarder.Delivered) error {
	for _, d := range all {
		p.take(d.Delivery)
	}
	return nil
}

func TestNotificationsThatNoConditionSelectsPassTheSinkBy(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		hooks := noted(o, func(string) error { return nil })
		o.insert(priced("k", map[string]string{"1": "5", "2": "50", "3": "7", "4": "70"})...)
		o.insert(notification.Envelope{ID: "5", Type: "t", Payload: []byte(`{"cost": 1}`), DeliverAt: time.Now().Add(time.Hour)})
		f := o.start(map[string]forwarder.Sink{"sink": {Sink: s, Hooks: hooks}}, expensive)
		f.flush()
		require.Equal(t, []string{"2", "4"}, s.given())
		require.Equal(t, []string{"delivered 2", "delivered 4"}, o.noted())
		require.Empty(t, o.parked(), "neither unrouted nor scheduled")
		require.Equal(t, 2, o.receipts())
		require.Equal(t, forwarder.Stats{Sink: "sink", Delivered: 2, PassedBy: 3}, f.Stats()[0])
		f.end()

		again := &script{}
		f = o.start(map[string]forwarder.Sink{"sink": {Sink: again}}, expensive)
		f.flush()
		require.Empty(t, again.given())
		require.Zero(t, f.Stats()[0].PassedBy, "they are all settled")
	})
}

func TestNotificationsThatPassASinkByUseNeitherItsRateNorItsThreshold(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		release := make(chan struct{})
		s := &script{answer: func(context.Context, *notification.Delivery) error { <-release; return nil }}
		rate, err := settings.ParseRate("1/h, burst 2")
		require.NoError(t, err)
		for i := range 100 {
			o.insert(priced("", map[string]string{fmt.Sprintf("p%03d", i): "1"})...)
		}
		o.insert(priced("", map[string]string{"a": "11", "b": "12"})...)
		f := o.start(map[string]forwarder.Sink{"sink": {
			Sink: s, Rate: rate, Timeout: time.Hour, Parallelism: forwarder.Parallelism{Threshold: 2, Above: forwarder.AboveSequential},
		}}, expensive)
		f.flush()
		require.ElementsMatch(t, []string{"a", "b"}, s.given(), "both at once: only two are pending")
		close(release)
		synctest.Wait()
		require.Equal(t, int64(100), f.Stats()[0].PassedBy)
	})
}

func TestADeliveryWhoseConditionFailsIsDead(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{}
		o.insert(priced("k", map[string]string{"1": "20", "2": `"much"`, "3": "30"})...)
		f := o.start(map[string]forwarder.Sink{"sink": {Sink: s, OnDead: forwarder.OnDeadHalt}}, expensive)
		f.flush()
		require.Equal(t, []string{"1"}, s.given())
		require.Equal(t, []string{"sink dead 2", "sink blocked 3"}, o.parked())
		require.Equal(t, "expression: routes.*: when: invalid operation: string > int (1:14)", o.parkedOf("2").LastError)
	})
}

func TestAFailingExpressionDoesNotAffectTheBreaker(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := down(sinks.Unavailable(errors.New("the destination is down")))
		f := o.start(map[string]forwarder.Sink{"sink": {Sink: s, Parallelism: alone, Breaker: forwarder.Breaker{MaxPause: time.Hour}}}, expensive)
		o.insert(priced("", map[string]string{"1": "20"})...)
		f.flush()
		pass(time.Minute) // until the pauses have grown
		s.given()
		o.insert(priced("", map[string]string{"2": `"much"`})...)
		f.flush()
		for range 10 {
			pass(time.Minute)
		}
		require.Equal(t, []string{"sink dead 2"}, o.parked())
		require.Less(t, len(s.given()), 8, "the pauses continue as without the expression")
		s.mended.Store(true)
		pass(2 * time.Hour)
		require.Equal(t, int64(1), f.Stats()[0].Delivered)
	})
}

func TestASinkGetsTheFieldsThatItsRoutePicks(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		var got payloads
		s := &script{answer: func(_ context.Context, d *notification.Delivery) error {
			got.take(d)
			if d.Attempt == 1 {
				return errors.New("later")
			}
			return nil
		}}
		var inHooks payloads
		hooks := forwarder.Hooks{Delivered: inHooks.delivered}
		o.insert(priced("", map[string]string{"1": "20"})...)
		f := o.start(map[string]forwarder.Sink{"sink": {Sink: s, Hooks: hooks}},
			route.Routes{"*": {{Sink: "sink", When: `payload.secret == 1`, Payload: map[string]string{"price": "payload.cost"}}}})
		f.flush()
		require.JSONEq(t, `{"cost": 20, "secret": 1}`, string(o.parkedOf("1").Envelope.Payload), "the whole payload is kept, since the condition is evaluated again")
		pass(time.Minute)
		require.Equal(t, map[string]string{"1": `{"price":20}`}, got.of)
		require.JSONEq(t, `{"cost": 20, "secret": 1}`, inHooks.of["1"])
		require.Equal(t, forwarder.Stats{Sink: "sink", Delivered: 1, Failed: 1}, f.Stats()[0])
	})
}

func TestParkedDeliveriesPassASinkByOnceItsRouteExcludesThem(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		s := &script{answer: fails(errors.New("later"), always)}
		o.insert(priced("k", map[string]string{"1": "5", "2": "50", "3": "6"})...)
		f := o.start(map[string]forwarder.Sink{"sink": {Sink: s}}, route.Routes{"*": route.To("sink")})
		f.flush()
		require.Equal(t, []string{"sink retrying 1", "sink blocked 2", "sink blocked 3"}, o.parked())
		f.end()

		later := &script{}
		f = o.start(map[string]forwarder.Sink{"sink": {Sink: later}}, expensive)
		pass(time.Hour)
		require.Equal(t, []string{"2"}, later.given())
		require.Empty(t, o.parked())
		require.Equal(t, forwarder.Stats{Sink: "sink", Delivered: 1, PassedBy: 2}, f.Stats()[0])
		o.insert(priced("k", map[string]string{"4": "40"})...)
		f.flush()
		require.Equal(t, []string{"4"}, later.given(), "the key is free")
	})
}
