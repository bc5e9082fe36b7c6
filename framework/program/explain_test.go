package program

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/registry"
)

// explained is a configuration without a database. The secrets to which it refers are not set.
const explained = `
forwarder: {unrouted: %s}
sinks:
  partner:
    kind: http
    with: {url: "${PARTNER_URL}", secret: "${PARTNER_SECRET}"}
    parallelism: {threshold: 4, above: sequential}
    retry: {max_attempts: 5, types: {"order.*": {max_attempts: 2, max_age: 48h, max: 90s}}}
    rate: 50/s, burst 100
    timeout: 10s
    on_dead: halt
  events: {kind: kafka}
routes:
  order.placed: [partner, events]
  "order.*": [partner]
  "customer.*": [partner]
`

func TestConfigExplainShowsSinksAndSettings(t *testing.T) {
	t.Parallel()
	file := writeFile(t, fmt.Sprintf(explained, "park"))
	r := waybill(t, "config", "explain", "-c", file, "order.placed", "customer.moved", "parcel.lost")
	require.Equal(t, result{stdout: `order.placed
 SINK     KIND   ROUTES                 THRESHOLD     ATTEMPTS  PAUSES       MAX AGE  BY                   TIMEOUT  RATE             ON DEAD
 events   kafka  order.placed           16 bounded    -         1s to 15m    24h      retry                30s      -                continue
 partner  http   order.placed, order.*  4 sequential  2         1s to 1m30s  48h      retry.types.order.*  10s      50/s, burst 100  halt

customer.moved
 SINK     KIND  ROUTES      THRESHOLD     ATTEMPTS  PAUSES     MAX AGE  BY     TIMEOUT  RATE             ON DEAD
 partner  http  customer.*  4 sequential  5         1s to 15m  -        retry  10s      50/s, burst 100  halt

parcel.lost: no route matches, so it is parked as dead under the sink _unrouted (forwarder.unrouted: park)
`}, r)
}

func TestConfigExplainShowsHowASinkCollects(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "sinks: {events: {kind: kafka, collect: {by: metadata.cart, keep: newest, wait: 90s}}}\nroutes: {\"*\": [events]}\n")
	r := waybill(t, "config", "explain", "-c", file, "order.placed")
	require.Contains(t, r.stdout, "\n events: collects newest by metadata.cart, after 1m30s, at most 15m\n")
	r = waybill(t, "config", "explain", "-c", file, "order.placed", "--json")
	require.Zero(t, r.code, r.stderr)
	require.Regexp(t, `(?s)"collect": \{\s+"by": "metadata.cart",\s+"keep": "newest",\s+"wait": "1m30s",\s+"max_wait": "15m"\s+\}`, r.stdout)
}

func TestConfigExplainOfWaybillsOwnTypes(t *testing.T) {
	t.Parallel()
	const sinks = "sinks: {events: {kind: kafka}, partner: {kind: jsonlines, with: {path: x}}}\n"
	r := waybill(t, "config", "explain", "-c", writeFile(t, sinks+`routes: {"*": [events], _hooks: [partner]}`), "_hooks", "_other")
	require.Equal(t, result{stdout: `_hooks
 SINK     KIND       ROUTES  THRESHOLD   ATTEMPTS  PAUSES     MAX AGE  BY     TIMEOUT  RATE  ON DEAD
 partner  jsonlines  _hooks  16 bounded  -         1s to 15m  24h      retry  30s      -     continue

_other: one of Waybill's own types, which no route matches: it is skipped
`}, r)
	r = waybill(t, "config", "explain", "-c", writeFile(t, sinks+`routes: {"order.*": [events, partner]}`), "_other")
	require.Equal(t, result{stdout: "_other: no route matches, so it is parked as dead under the sink _unrouted (forwarder.unrouted: park)\n"}, r)
}

func TestConfigExplainShowsHours(t *testing.T) {
	t.Parallel()
	file := writeFile(t, `
sinks: {digest: {kind: kafka, hours: {zone: "metadata.zone || 'Europe/Berlin'", from: 08:00, to: "20:00", days: mon-fri, unless: "metadata.urgent == 'true'"}}}
routes: {"*": [digest]}
`)
	const hours = `08:00 to 20:00 in metadata.zone || 'Europe/Berlin', mon-fri, unless metadata.urgent == 'true'`
	require.Contains(t, waybill(t, "config", "explain", "-c", file, "t").stdout, "\n digest: deliveries begin from "+hours+"\n")
	var views []typeView
	require.NoError(t, json.Unmarshal([]byte(waybill(t, "config", "explain", "-c", file, "t", "--json").stdout), &views))
	require.Equal(t, hours, views[0].Sinks[0].Hours)
	r := waybill(t, "config", "check", "-c", writeFile(t, `
sinks: {digest: {kind: kafka, hours: {zone: Europe/Berln, from: "8", to: "20:00"}}}
routes: {"*": [digest]}
`))
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr+r.stdout, `sinks.digest.hours.from is "8": use a time of day, such as 08:00`)
	require.Contains(t, r.stderr+r.stdout, `sinks.digest.hours.zone is neither the name of a zone, such as Europe/Berlin, nor an expression`)
}

func TestConfigExplainAsJSON(t *testing.T) {
	t.Parallel()
	file := writeFile(t, fmt.Sprintf(explained, "ignore"))
	r := waybill(t, "config", "explain", "-c", file, "order.moved", "parcel.lost", "--json")
	require.Zero(t, r.code, r.stderr)
	require.JSONEq(t, `[
		{"type": "order.moved", "sinks": [{
			"sink": "partner", "kind": "http", "routes": [{"route": "order.*"}],
			"parallelism": {"threshold": 4, "above": "sequential"},
			"retry": {"types": "order.*", "max_attempts": 2, "max_age": "48h", "initial": "1s", "max": "1m30s"},
			"timeout": "10s", "rate": "50/s, burst 100", "on_dead": "halt"
		}]},
		{"type": "parcel.lost", "unrouted": "ignore", "sinks": []}
	]`, r.stdout)

	r = waybill(t, "config", "explain", "-c", writeFile(t, "sinks: {events: {kind: kafka, retry: {pauses: [5s, 1m30s, 2h]}}}\nroutes: {\"*\": [events]}\n"), "order.moved", "--json")
	require.Contains(t, r.stdout, `"max_attempts": 4,`)
	require.NotContains(t, r.stdout, `"initial"`)
	r = waybill(t, "config", "explain", "-c", writeFile(t, "sinks: {events: {kind: kafka, retry: {pauses: [5s, 1m30s, 2h]}}}\nroutes: {\"*\": [events]}\n"), "order.moved")
	require.Regexp(t, `\* +16 bounded  4 +5s, 1m30s, 2h  - +retry  30s`, r.stdout)

	r = waybill(t, "config", "explain", "-c", file, "parcel.lost")
	require.Equal(t, result{stdout: "parcel.lost: no route matches, so it is skipped (forwarder.unrouted: ignore)\n"}, r)
}

const conditional = `
sinks:
  partner: {kind: http}
  events: {kind: kafka}
routes:
  order.placed:
    - events
    - sink: partner
      when: payload.total > 100 && metadata.tenant == "acme"
      payload: {order: payload.id, sum: payload.total}
  "order.*":
    - {sink: partner, when: key == "urgent"}
`

func TestConfigExplainShowsConditionsAndPayloads(t *testing.T) {
	t.Parallel()
	file := writeFile(t, conditional)
	rules := `order.placed
 SINK     KIND   ROUTES                 THRESHOLD   ATTEMPTS  PAUSES     MAX AGE  BY     TIMEOUT  RATE  ON DEAD
 events   kafka  order.placed           16 bounded  -         1s to 15m  24h      retry  30s      -     continue
 partner  http   order.placed, order.*  16 bounded  -         1s to 15m  24h      retry  30s      -     continue
 partner: order.placed, when payload.total > 100 && metadata.tenant == "acme", with the payload {order: payload.id, sum: payload.total}
 partner: order.*, when key == "urgent"
`
	require.Equal(t, result{stdout: rules}, waybill(t, "config", "explain", "-c", file, "order.placed"))

	data := writeFile(t, `{"id": 7, "total": 120}`)
	for want, args := range map[string][]string{
		" this notification goes to events: {\"id\": 7, \"total\": 120}\n this notification goes to partner: {\"order\":7,\"sum\":120}\n":   {"--metadata", "tenant=acme"},
		" this notification goes to events: {\"id\": 7, \"total\": 120}\n this notification does not go to partner: no condition holds\n":   {"--metadata", "tenant=other"},
		" this notification goes to events: {\"id\": 7, \"total\": 120}\n this notification goes to partner: {\"id\": 7, \"total\": 120}\n": {"--key", "urgent"},
	} {
		r := waybill(t, append([]string{"config", "explain", "-c", file, "order.placed", "--data", data}, args...)...)
		require.Equal(t, result{stdout: rules + want}, r)
	}
	odd := writeFile(t, `{"id": 7, "total": "a lot"}`)
	r := waybill(t, "config", "explain", "-c", file, "order.placed", "--data", odd)
	require.Equal(t, rules+` this notification goes to events: {"id": 7, "total": "a lot"}
 this notification would be dead for partner: expression: routes.order.placed: when: invalid operation: string > int (1:15)
`, r.stdout)

	r = waybill(t, "config", "explain", "-c", file, "order.placed", "--data", data, "--metadata", "tenant=acme", "--json")
	require.Zero(t, r.code, r.stderr)
	var views []typeView
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &views))
	require.Equal(t, []admin.RouteRule{
		{Route: "order.placed", When: `payload.total > 100 && metadata.tenant == "acme"`, Payload: map[string]string{"order": "payload.id", "sum": "payload.total"}},
		{Route: "order.*", When: `key == "urgent"`},
	}, views[0].Sinks[1].Routes)
	require.True(t, views[0].Sinks[1].Sample.Goes)
	require.JSONEq(t, `{"order": 7, "sum": 120}`, string(views[0].Sinks[1].Sample.Payload))
}

func TestConfigExplainRefusesAnInvalidSample(t *testing.T) {
	t.Parallel()
	file, broken := writeFile(t, conditional), writeFile(t, `{"id": `)
	r := waybill(t, "config", "explain", "-c", file, "order.placed", "--data", broken)
	require.Equal(t, result{code: exitFailed, stderr: "waybill: --data: " + broken + " is not JSON\n"}, r)
	r = waybill(t, "config", "explain", "-c", file, "order.placed", "--data", broken+"2")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "no such file")
	r = waybill(t, "config", "explain", "-c", file, "order.placed", "--key", "k")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "need --data with the payload")
}

func TestConfigExplainRefusesInvalidTypesAndFiles(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "sinks: {a: {kind: http, on_dead: stop}}\nroutes:\n  a: [b]\n")
	r := waybill(t, "config", "explain", "-c", file, "a")
	require.Equal(t, result{code: exitUsage, stderr: file + ":1: sinks.a.on_dead is \"stop\": use continue or halt\n" +
		file + ":3: routes.a names the unknown sink \"b\"; did you mean a?\n"}, r)

	r = waybill(t, "config", "explain", "-c", file)
	require.Equal(t, result{code: exitUsage, stderr: "waybill: name a notification type, such as order.placed; see waybill config explain --help\n"}, r)

	r = waybill(t, "config", "explain", "-c", file, "order.*")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, `type name "order.*" contains '*'`)
}

func TestConfigExplainShowsTheSameForAnAlias(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[struct{}](types, "price.set", registry.Aliases("price.changed")))
	routes, err := route.New(route.Routes{"price.set": route.To("events")}, []string{"events"}, types)
	require.NoError(t, err)
	c := &config.Config{Sinks: map[string]config.Sink{
		"events": {Kind: "kafka", Sink: forwarder.Sink{Retry: forwarder.Retry{Types: map[string]forwarder.Retry{"price.set": {MaxAttempts: 3}}}}},
	}}

	view := new(explain).typeOf(c, routes, "price.changed")
	require.Equal(t, "price.changed (an alias, routed as price.set)", view.name())
	require.Equal(t, "events", view.Sinks[0].Sink)
	require.Equal(t, 3, view.Sinks[0].Retry.MaxAttempts)
	require.Equal(t, "price.set", view.Sinks[0].Routes[0].Route)
}
