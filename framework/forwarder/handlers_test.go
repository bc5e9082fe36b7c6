package forwarder_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/sinks"
)

// typed is a sink that handles some types only.
type typed struct {
	script
	handled []sinks.HandledType
	err     error
}

func (s *typed) HandledTypes() ([]sinks.HandledType, error) { return s.handled, s.err }

func TestRoutesAndHandlersThatDoNotMatchAreRefused(t *testing.T) {
	t.Parallel()
	broken := errors.New("go type is not registered: shop.Unknown")
	_, err := forwarder.New(forwarder.Config{
		Store: struct{ forwarder.Store }{},
		Sinks: map[string]forwarder.Sink{
			"warehouse": {Sink: &typed{handled: []sinks.HandledType{{Name: "order.placed"}}}},
			"mailing":   {Sink: &typed{handled: []sinks.HandledType{{Name: "order.placed"}, {Name: "customer.moved"}}}},
			"ledger":    {Sink: &typed{err: broken}},
			"events":    {Sink: &script{}},
		},
		Routes: route.Routes{
			"order.placed":  route.To("warehouse", "mailing", "ledger"),
			"order.shipped": route.To("warehouse", "events"),
		},
	})
	require.ErrorIs(t, err, forwarder.ErrConfig)
	require.ErrorIs(t, err, route.ErrNoHandler)
	require.ErrorIs(t, err, route.ErrNoRoute)
	require.ErrorIs(t, err, broken)
	require.EqualError(t, err, `invalid forwarder configuration: sinks.ledger: go type is not registered: shop.Unknown
invalid forwarder configuration: sinks.mailing: no route to the handler of customer.moved: add mailing to routes.customer.moved, or remove the handler
invalid forwarder configuration: routes.order.shipped: no handler for the type: warehouse handles order.placed, not order.shipped: add a handler, or remove warehouse from the route`)
}
