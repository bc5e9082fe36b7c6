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
	require.True(t, table.Filter("events").Matches("any.type"))
	require.Equal(t, notification.TypeFilter{}, table.Unrouted())
}

var allButReserved = notification.TypeFilter{Names: []string{"waybill.alert.cleared", "waybill.alert.raised"}, Prefixes: []string{"_"}, Except: true}

func TestOnlyAPatternThatBeginsWithAnUnderscoreMatchesAReservedType(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]bool{"*": false, "_hooks": true, "_hooks.*": false, "_other": false, "order.*": false} {
		require.Equal(t, want, route.Matches(pattern, "_hooks"), pattern)
	}
	require.True(t, route.Matches("*", "order_placed"))
	table := newTable(t, route.Routes{"*": route.To("events", "mail"), "_hooks": route.To("mail"), "_hooks.*": route.To("mail")}, known, nil)
	require.Equal(t, []string{"mail"}, table.Sinks("_hooks"))
	require.Equal(t, []string{"mail"}, table.Sinks("_hooks.late"))
	require.Empty(t, table.Sinks("_other"))
	require.Equal(t, []string{"events", "mail"}, table.Sinks("order.placed"))
	require.Equal(t, allButReserved, table.Filter("events"), "the database filters")
	require.Equal(t, notification.TypeFilter{}, table.Unrouted())
}

// Alerts about a sink are none of what it gets.
func TestOnlyAPatternThatNamesThemMatchesAlerts(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]bool{"*": false, "waybill.*": true, "waybill.alert.raised": true, "order.*": false} {
		require.Equal(t, want, route.Matches(pattern, "waybill.alert.raised"), pattern)
	}
	table := newTable(t, route.Routes{"*": route.To("events", "mail"), "waybill.*": route.To("mail")}, known, nil)
	require.Equal(t, []string{"mail"}, table.Sinks("waybill.alert.raised"))
	require.False(t, table.Filter("events").Matches("waybill.alert.raised"))
	require.True(t, table.Filter("events").Matches("waybill.endpoint"))
	require.True(t, table.Filter("mail").Matches("waybill.alert.raised"))
}

// A filter cannot select all but some of the reserved types, so the path leaves out the rest.
func TestASinkOfAllTypesAndAReservedOneGetsNoOtherReservedType(t *testing.T) {
	t.Parallel()
	table := newTable(t, route.Routes{"*": route.To("events", "mail"), "_hooks": route.To("mail")}, known, nil)
	require.Equal(t, notification.AllTypes, table.Filter("mail"))
	require.True(t, table.To("events").Plain())
	path := table.To("mail")
	require.False(t, path.Plain())
	for typ, want := range map[string]bool{"order.placed": true, "_hooks": true, "_other": false} {
		e := &notification.Envelope{Type: typ}
		admitted, err := path.Admits(t.Context(), e)
		require.NoError(t, err)
		require.Equal(t, want, admitted, typ)
		shaped, err := path.Shape(t.Context(), e)
		require.NoError(t, err)
		require.Equal(t, want, shaped != nil, typ)
	}
}

func TestWithoutARouteForAllReservedTypesAreUnroutedAsAnyOther(t *testing.T) {
	t.Parallel()
	table := newTable(t, route.Routes{"order.*": route.To("events"), "_hooks": route.To("mail")}, known, nil)
	require.Equal(t, notification.TypeFilter{Names: []string{"_hooks"}}, table.Filter("mail"))
	require.False(t, table.Unrouted().Matches("_hooks"))
	require.True(t, table.Unrouted().Matches("_other"))
	require.True(t, table.To("mail").Plain())
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
	for pattern, fits := range map[string]bool{"order.placed": true, "OrderPlaced": true, "order.*": true, "*": true, "order.plcaed": false, "customer.*": false, "_hooks": true} {
		_, err := route.New(route.Routes{pattern: route.To("events")}, known, types)
		if fits {
			require.NoError(t, err, pattern)
			continue
		}
		require.ErrorIs(t, err, route.ErrNoType)
		require.ErrorContains(t, err, "routes."+pattern+": matches no registered type; registered are order.placed")
	}
	_, err := route.New(route.Routes{"order.*": route.To("events")}, known, registry.New())
	require.ErrorContains(t, err, "routes.order.*: matches no registered type; registered are none: register it")
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
