package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/route"
)

func TestARouteAcceptsNamesAndRules(t *testing.T) {
	t.Parallel()
	c, err := config.LoadDeliveries(config.Source{File: write(t, `
sinks: {events: {kind: kafka}, partner: {kind: http}}
routes:
  order.placed:
    - events
    - sink: partner
      when: payload.total > 100
      payload: {order: payload.id, "a b": "'x'"}
  "order.*": [{sink: events}]
`), Environ: []string{"WAYBILL_ROUTES_ORDER_PLACED_=ignored"}}, config.Options{})
	require.NoError(t, err)
	require.Equal(t, route.Routes{
		"order.placed": {{Sink: "events"}, {Sink: "partner", When: "payload.total > 100", Payload: map[string]string{"order": "payload.id", "a b": "'x'"}}},
		"order.*":      {{Sink: "events"}},
	}, c.Routes)
	require.Equal(t, []string{"order.placed when payload.total > 100"}, c.RoutesTo("partner"))
	require.Equal(t, []string{"order.*", "order.placed"}, c.RoutesTo("events"))
	table, err := c.Table()
	require.NoError(t, err)
	require.Equal(t, []string{"events", "partner"}, table.Sinks("order.placed"))
}

func TestMistakesInRulesAreReportedWithTheirLines(t *testing.T) {
	t.Parallel()
	file := write(t, `
sinks: {events: {kind: kafka}}
routes:
  a:
    - sink: event
    - when: "true"
    - sink: events
      when: payload.total >
      payload:
        order: payload.
        sum: total
    - {sink: events, wen: "true"}
    - [events]
    - sink: events
      when: [1]
`)
	_, err := config.LoadDeliveries(config.Source{File: file}, config.Options{})
	require.EqualError(t, err, file+`:5: routes.a names the unknown sink "event"; did you mean events?
`+file+`:6: routes.a[1].sink is missing: name the sink
`+file+`:8: routes.a[2].when: expression: "payload.total >": unexpected token EOF (1:15)
`+file+`:10: routes.a[2].payload.order: expression: "payload.": unexpected end of expression (1:8)
`+file+`:11: routes.a[2].payload.sum: expression: "total": unknown name total (1:1)
`+file+`:12: routes.a[3]: unknown key "wen"; did you mean when?
`+file+`:13: routes.a[4] is a list: write keys: sink, when, payload
`+file+`:15: routes.a[5].when is a list: write a single value`)
}
