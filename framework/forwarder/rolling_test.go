package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	outboxes "github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
)

// The old program has the types price.changed v1 and promo.ended. The new one renames price.changed to
// price.set, with version 2, and removes promo.ended.
type (
	priceChanged struct {
		Item   string
		Number int
		Euros  int
	}
	priceSet struct {
		Item   string
		Number int
		Cents  int
	}
	promoEnded struct{ Item string }
)

// handled are the calls of the handlers of both programs, by item.
type handled struct {
	mu     sync.Mutex
	prices map[string][]priceSet
	promos []string
}

func (h *handled) price(p priceSet) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.prices[p.Item] = append(h.prices[p.Item], p)
}

func (h *handled) oldProgram(t *testing.T) (*registry.Registry, sinks.Sink) {
	types := registry.New()
	require.NoError(t, registry.Register[priceChanged](types, "price.changed", registry.Key(func(p priceChanged) string { return p.Item })))
	require.NoError(t, registry.Register[promoEnded](types, "promo.ended", registry.Key(func(p promoEnded) string { return "promo-" + p.Item })))
	return types, function.Mux(types, function.On(func(_ context.Context, p priceChanged) error {
		h.price(priceSet{p.Item, p.Number, 100 * p.Euros})
		return nil
	}), function.On(func(_ context.Context, p promoEnded) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.promos = append(h.promos, p.Item)
		return nil
	}))
}

func (h *handled) newProgram(t *testing.T) (*registry.Registry, sinks.Sink) {
	types := registry.New()
	require.NoError(t, registry.Register[priceSet](types, "price.set", registry.Version(2), registry.Aliases("price.changed"),
		registry.Upcast(1, func(p priceChanged) (priceSet, error) { return priceSet{p.Item, p.Number, 100 * p.Euros}, nil }),
		registry.Key(func(p priceSet) string { return p.Item })))
	return types, function.Mux(types, function.On(func(_ context.Context, p priceSet) error {
		h.price(p)
		return nil
	}))
}

func TestARollingDeployDeliversAllInOrderAndLeavesNothingDead(t *testing.T) {
	onEachStore(t, func(t *testing.T, o *outbox) {
		const items, rounds = 40, 5
		h := &handled{prices: make(map[string][]priceSet)}
		oldTypes, oldSink := h.oldProgram(t)
		newTypes, newSink := h.newProgram(t)
		start := func(name string, types *registry.Registry, sink sinks.Sink) *engine {
			return o.start(map[string]forwarder.Sink{"shop": {Sink: sink}}, route.Routes{"*": route.To("shop")}, func(c *forwarder.Config) {
				c.Name, c.Types, c.Lanes, c.Lease = name, types, 4, 15*time.Second
			})
		}
		publish := func(types *registry.Registry, n any) {
			p, err := outboxes.New(types, o.store, outboxes.Config{Announcer: outboxes.Silent})
			require.NoError(t, err)
			require.NoError(t, p.RunInTx(t.Context(), o.db, nil, func(ctx context.Context, tx *sql.Tx) error { return p.Publish(ctx, tx, n) }))
		}
		prices, promos := 0, 0
		round := func(newToo bool) {
			for i := range items {
				item := fmt.Sprint("item-", i)
				publish(oldTypes, priceChanged{item, prices, i})
				if newToo {
					publish(newTypes, priceSet{item, prices + 1, 100 * i})
				}
				publish(oldTypes, promoEnded{item})
				promos++
			}
			prices++
			if newToo {
				prices++
			}
		}
		old := start("old", oldTypes, oldSink)
		round(false)
		time.Sleep(time.Minute)
		fresh := start("new", newTypes, newSink)
		for range rounds {
			round(true) // the old and the new program publish and deliver at the same time
			time.Sleep(10 * time.Second)
			require.Zero(t, value[int](o, `SELECT count(*) FROM outbox_parked WHERE state = 'dead'`))
		}
		old.flush()
		require.NotZero(t, value[int](o, `SELECT count(*) FROM outbox_parked WHERE state = 'retrying' AND attempt = 0`), "notifications that one of the two does not know wait")
		old.end()
		publish(oldTypes, promoEnded{"last"}) // by an old publisher that runs longer than the forwarder
		promos++
		pass(5 * time.Minute)

		for i := range items {
			item := fmt.Sprint("item-", i)
			got := h.prices[item]
			require.Len(t, got, prices, item)
			for n, p := range got {
				require.Equal(t, priceSet{item, n, 100 * i}, p, "in order, and as the newest version")
			}
		}
		require.Zero(t, value[int](o, `SELECT count(*) FROM outbox_parked WHERE type <> 'promo.ended' OR state = 'dead'`))
		require.Less(t, len(h.promos), promos, "notifications whose type was removed too early wait")
		fresh.end()

		start("old", oldTypes, oldSink) // a rollback of the deployment
		pass(5 * time.Minute)
		require.Len(t, h.promos, promos)
		require.Empty(t, o.parked())
	})
}

func TestAnExactRouteIncludesTheAliasesOfItsType(t *testing.T) {
	types := registry.New()
	require.NoError(t, registry.Register[struct{}](types, "price.set", registry.Aliases("price.changed")))
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		f := o.start(map[string]forwarder.Sink{"s": {Sink: &s}}, route.Routes{"price.set": route.To("s")},
			func(c *forwarder.Config) { c.Types = types })
		o.append("price.changed", "k", "old")
		o.append("price.set", "k", "new")
		f.publish("price.dropped", "", "other")
		require.Equal(t, []string{"old", "new"}, s.given())
		require.Equal(t, []string{"_unrouted dead other"}, o.parked())
	})
}

func TestTheRetryPolicyOfATypeAppliesToItsAliases(t *testing.T) {
	types := registry.New()
	require.NoError(t, registry.Register[struct{}](types, "price.set", registry.Aliases("price.changed")))
	onEachStore(t, func(t *testing.T, o *outbox) {
		o.start(map[string]forwarder.Sink{"s": {Sink: down(errors.New("500")), Breaker: forwarder.Breaker{Off: true},
			Retry: forwarder.Retry{Types: map[string]forwarder.Retry{"price.set": {MaxAttempts: 2}}}}},
			route.Routes{"price.set": route.To("s")}, func(c *forwarder.Config) { c.Types = types })
		o.append("price.changed", "", "old")
		pass(time.Minute)
		require.Equal(t, []string{"s dead old"}, o.parked())
		require.Equal(t, 2, o.spent())
	})
}
