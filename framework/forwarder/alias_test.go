package forwarder_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/registry"
)

func TestAnExactRouteTakesWhatIsStoredUnderAnAliasOfItsType(t *testing.T) {
	types := registry.New()
	require.NoError(t, registry.Register[struct{}](types, "price.set", registry.Aliases("price.changed")))
	onEachStore(t, func(t *testing.T, o *outbox) {
		var s script
		f := o.start(map[string]forwarder.Sink{"s": {Sink: &s}}, route.Routes{"price.set": route.To("s")},
			func(c *forwarder.Config) { c.Types = types })
		o.append("price.changed", "", "old")
		o.append("price.set", "", "new")
		o.append("price.dropped", "", "other")
		f.flush()
		require.Equal(t, []string{"old", "new"}, s.given())
		require.Equal(t, []string{"_unrouted dead other"}, o.parked())
		f.end()
	})
}
