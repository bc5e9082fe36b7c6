package route_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

type (
	orderPlaced  struct{}
	orderShipped struct{}
	stockCounted struct{}
)

func TestEachTypeOfARouteHasAHandlerAndEachHandlerARoute(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, errors.Join(
		registry.Register[orderPlaced](types, "order.placed", registry.Aliases("order.created")),
		registry.Register[orderShipped](types, "order.shipped"),
		registry.Register[stockCounted](types, "stock.counted"),
	))
	placed := sinks.HandledType{Name: "order.placed", Aliases: []string{"order.created"}}
	shipped := sinks.HandledType{Name: "order.shipped"}
	for name, c := range map[string]struct {
		patterns []string
		handled  []sinks.HandledType
		types    *registry.Registry
		want     []string
	}{
		"each has one":                {patterns: []string{"order.placed", "order.shipped"}, handled: []sinks.HandledType{placed, shipped}, types: types},
		"a pattern of types":          {patterns: []string{"order.*"}, handled: []sinks.HandledType{placed, shipped}, types: types},
		"an alias":                    {patterns: []string{"order.created"}, handled: []sinks.HandledType{placed}, types: types},
		"an alias without a registry": {patterns: []string{"order.created"}, handled: []sinks.HandledType{placed}},
		"a route without a handler": {
			patterns: []string{"order.placed", "stock.counted"}, handled: []sinks.HandledType{placed}, types: types,
			want: []string{`routes.stock.counted: no handler for the type: shop handles order.placed, not stock.counted: add a handler, or remove shop from the route`},
		},
		"a pattern with types without a handler": {
			patterns: []string{"*"}, handled: []sinks.HandledType{placed}, types: types,
			want: []string{`routes.*: no handler for the type: shop handles order.placed, not order.shipped, stock.counted: add handlers, or name the types in routes to shop instead of *`},
		},
		"a pattern without handled types": {
			patterns: []string{"order.placed", "customer.*"}, handled: []sinks.HandledType{placed},
			want: []string{`routes.customer.*: no handler for the type: shop handles order.placed, none that the pattern matches: add a handler, or remove shop from the route`},
		},
		"a handler without a route": {
			patterns: []string{"order.placed"}, handled: []sinks.HandledType{placed, shipped}, types: types,
			want: []string{`sinks.shop: no route to the handler of order.shipped: add shop to routes.order.shipped, or remove the handler`},
		},
		"all at once": {
			patterns: []string{"stock.counted"}, handled: []sinks.HandledType{placed, shipped}, types: types,
			want: []string{
				`routes.stock.counted: no handler for the type: shop handles order.placed, order.shipped, not stock.counted`,
				`sinks.shop: no route to the handler of order.placed`,
				`sinks.shop: no route to the handler of order.shipped`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			routes := make(route.Routes)
			for _, p := range c.patterns {
				routes[p] = route.To("shop")
			}
			table := newTable(t, routes, []string{"shop", "other"}, c.types)
			err := table.CheckHandlers("shop", c.handled)
			if c.want == nil {
				require.NoError(t, err)
			}
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}
