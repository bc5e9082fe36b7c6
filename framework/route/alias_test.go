package route_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/registry"
)

type (
	priceSet    struct{}
	stockLanded struct{}
)

// renamed returns a registry in which price.set has the aliases price.changed and Price.
func renamed(t *testing.T) *registry.Registry {
	t.Helper()
	types := registry.New()
	require.NoError(t, errors.Join(
		registry.Register[priceSet](types, "price.set", registry.Aliases("price.changed", "Price")),
		registry.Register[stockLanded](types, "stock.landed"),
	))
	return types
}

func TestAnAliasIsRoutedAsItsType(t *testing.T) {
	t.Parallel()
	for pattern, names := range map[string][]string{
		"price.set":     {"Price", "price.changed", "price.set"},           // by its current name
		"price.changed": {"Price", "price.changed", "price.set"},           // by an alias
		"price.*":       {"Price"},                                         // a prefix of the other names
		"*":             {"waybill.alert.cleared", "waybill.alert.raised"}, // which it leaves out
	} {
		t.Run(pattern, func(t *testing.T) {
			t.Parallel()
			table := newTable(t, route.Routes{pattern: {{Sink: "events", When: `type == "price.set"`}}}, []string{"events"}, renamed(t))
			for _, typ := range []string{"price.set", "price.changed", "Price"} {
				require.Equal(t, []string{"events"}, table.Sinks(typ), typ)
				require.True(t, table.Filter("events").Matches(typ), "the store reads %s", typ)
				require.False(t, table.Unrouted().Matches(typ), typ)
				require.Len(t, table.To("events").Steps(typ), 1, typ)
				admitted, err := table.To("events").Admits(t.Context(), &notification.Envelope{Type: typ})
				require.NoError(t, err)
				require.True(t, admitted, "%s: a condition sees the present name", typ)
				shaped, err := table.To("events").Shape(t.Context(), &notification.Envelope{Type: typ})
				require.NoError(t, err)
				require.Equal(t, typ, shaped.Type, "the sink gets the stored name")
			}
			require.Equal(t, names, table.Filter("events").Names)
		})
	}
}

func TestAliasesDoNotAffectOtherTypes(t *testing.T) {
	t.Parallel()
	table := newTable(t, route.Routes{"price.set": route.To("events")}, []string{"events"}, renamed(t))
	require.Empty(t, table.Sinks("stock.landed"))
	require.True(t, table.Unrouted().Matches("stock.landed"))
	require.False(t, table.Filter("events").Matches("price.dropped"))
}

func TestEachNameOfATypeHasAllNames(t *testing.T) {
	t.Parallel()
	table := newTable(t, route.Routes{"*": route.To("events")}, []string{"events"}, renamed(t))
	for _, name := range []string{"price.set", "price.changed", "Price"} {
		require.Equal(t, "price.set", table.TypeOf(name))
		require.Equal(t, []string{"price.set", "Price", "price.changed"}, table.Names(name))
	}
	require.Equal(t, "no.such", table.TypeOf("no.such"))
	require.Equal(t, []string{"no.such"}, table.Names("no.such"))
}

func TestWithoutARegistryThereAreNoAliases(t *testing.T) {
	t.Parallel()
	table := newTable(t, route.Routes{"price.set": route.To("events")}, []string{"events"}, nil)
	require.Empty(t, table.Sinks("price.changed"))
	require.Equal(t, "price.changed", table.TypeOf("price.changed"))
}
