package route_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/registry"
)

var known = []string{"events", "mail", "partner"}

// newTable returns the table of valid routes.
func newTable(t testing.TB, routes route.Routes, sinks []string, types *registry.Registry) *route.Table {
	t.Helper()
	table, err := route.New(routes, sinks, types)
	require.NoError(t, err)
	return table
}

func TestATypeGoesToTheSinksOfAllMatchingRoutesOnce(t *testing.T) {
	t.Parallel()
	table := newTable(t, route.Routes{
		"order.placed": route.To("events", "mail"),
		"order.*":      route.To("events"),
		"*":            route.To("partner"),
	}, known, nil)
	require.Equal(t, []string{"events", "mail", "partner"}, table.Sinks("order.placed"))
	require.Equal(t, []string{"events", "partner"}, table.Sinks("order.line.added"))
	require.Equal(t, []string{"partner"}, table.Sinks("order"), "order.* does not match order")
}

func TestFiltersSelectTheTypesOfASinkAndUnroutedTypes(t *testing.T) {
	t.Parallel()
	table := newTable(t, route.Routes{
		"order.placed": route.To("events", "mail"),
		"customer.*":   route.To("events"),
	}, known, nil)
	require.Equal(t, notification.TypeFilter{Names: []string{"order.placed"}, Prefixes: []string{"customer."}}, table.Filter("events"))
	require.Equal(t, notification.TypeFilter{Names: []string{"order.placed"}}, table.Filter("mail"))
	require.Equal(t, notification.TypeFilter{}, table.Filter("partner"), "no type is routed to it")
	require.Equal(t, notification.TypeFilter{Names: []string{"order.placed"}, Prefixes: []string{"customer."}, Except: true}, table.Unrouted())
	require.Equal(t, map[string]notification.TypeFilter{"events": table.Filter("events"), "mail": table.Filter("mail")}, table.Filters())
}

func TestARouteForAllLeavesNothingUnrouted(t *testing.T) {
	t.Parallel()
	table := newTable(t, route.Routes{"*": route.To("events")}, known, nil)
	require.True(t, table.Filter("events").All())
	require.Equal(t, notification.TypeFilter{}, table.Unrouted())
}

func TestAllMistakesAreReportedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := route.New(route.Routes{
		"order.placed": route.To("evnts"),
		"or*der":       route.To("mail"),
		"customer.*":   {},
	}, known, nil)
	require.ErrorIs(t, err, route.ErrUnknownSink)
	require.ErrorIs(t, err, route.ErrPattern)
	require.ErrorIs(t, err, route.ErrNoSinks)
	require.ErrorContains(t, err, `routes.order.placed: names the unknown sink "evnts"; known are events, mail, partner`)
}

func TestAPatternThatMatchesNoRegisteredTypeIsAMistake(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[struct{ A int }](types, "order.placed", registry.Aliases("OrderPlaced")))
	for pattern, fits := range map[string]bool{"order.placed": true, "OrderPlaced": true, "order.*": true, "*": true, "order.plcaed": false, "customer.*": false} {
		_, err := route.New(route.Routes{pattern: route.To("events")}, known, types)
		if fits {
			require.NoError(t, err, pattern)
			continue
		}
		require.ErrorIs(t, err, route.ErrNoType)
		require.ErrorContains(t, err, "routes."+pattern+": matches no registered type; registered are order.placed")
	}
}

func ExampleTable_Sinks() {
	table, err := route.New(route.Routes{
		"order.placed": route.To("events", "mail"),
		"customer.*":   route.To("events"),
	}, []string{"events", "mail"}, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(table.Sinks("order.placed"))
	fmt.Println(table.Sinks("customer.moved"))
	fmt.Println(table.Sinks("stock.counted"))
	// Output:
	// [events mail]
	// [events]
	// []
}
