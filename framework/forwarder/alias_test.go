package forwarder_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/registry"
)

func TestAnExactRouteIncludesTheAliasesOfItsType(t *testing.T) {
	types := registry.New()
	require.NoError(t, registry.Register[struct{}](types, "price.set", registry.Aliases("price.changed")))
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		f := o.start(map[string]forwarder.Sink{"s": {Sink: &s}}, route.Routes{"price.set": route.To("s")},
			func(c *forwarder.Config) { c.Types = types })
		o.append("price.changed", "k", "old")
		o.append("price.set", "k", "new")
		o.append("price.dropped", "", "other")
		f.flush()
		require.Equal(t, []string{"old", "new"}, s.given())
		require.Equal(t, []string{"_unrouted dead other"}, o.parked())
		f.end()
	})
}

func TestTheRetryPolicyOfATypeAppliesToItsAliases(t *testing.T) {
	types := registry.New()
	require.NoError(t, registry.Register[struct{}](types, "price.set", registry.Aliases("price.changed")))
	onEachStore(t, func(t *testing.T, o *outbox) {
		f := o.start(map[string]forwarder.Sink{"s": {Sink: answers500(), Breaker: forwarder.Breaker{Off: true},
			Retry: forwarder.Retry{Types: map[string]forwarder.Retry{"price.set": {MaxAttempts: 2}}}}},
			route.Routes{"price.set": route.To("s")}, func(c *forwarder.Config) { c.Types = types })
		o.append("price.changed", "", "old")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"s dead old"}, o.parked())
		require.Equal(t, 2, value[int](o, `SELECT attempt FROM outbox_parked`))
		f.end()
	})
}
