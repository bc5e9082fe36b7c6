package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// explained has neither a database nor the secrets that it names.
const explained = `
forwarder: {unrouted: %s}
sinks:
  partner:
    kind: http
    with: {url: "${PARTNER_URL}", secret: "${PARTNER_SECRET}"}
    parallelism: {threshold: 4, above: sequential}
    retry: {max_attempts: 5, jitter: 0, types: {"order.*": {max_attempts: 2, max_age: 48h, max: 90s}}}
    rate: 50/s, burst 100
    timeout: 10s
    on_dead: halt
  events: {kind: kafka}
routes:
  order.placed: [partner, events]
  "order.*": [partner]
  "customer.*": [partner]
`

func TestConfigExplainTellsSinksAndSettings(t *testing.T) {
	t.Parallel()
	file := writeFile(t, fmt.Sprintf(explained, "park"))
	r := waybill(t, "config", "explain", "-c", file, "order.placed", "customer.moved", "parcel.lost")
	require.Equal(t, result{stdout: `order.placed
 SINK     KIND   ROUTES                 THRESHOLD     ATTEMPTS  PAUSES             MAX AGE  BY                   TIMEOUT  RATE             ON DEAD
 events   kafka  order.placed           16 bounded          12  1s x2 to 15m ±20%  -        retry                30s      -                continue
 partner  http   order.*, order.placed  4 sequential         2  1s x2 to 1m30s     48h      retry.types.order.*  10s      50/s, burst 100  halt

customer.moved
 SINK     KIND  ROUTES      THRESHOLD     ATTEMPTS  PAUSES        MAX AGE  BY     TIMEOUT  RATE             ON DEAD
 partner  http  customer.*  4 sequential         5  1s x2 to 15m  -        retry  10s      50/s, burst 100  halt

parcel.lost: no route matches, so it is parked as dead under the sink _unrouted (forwarder.unrouted: park)
`}, r)
}

func TestConfigExplainAsJSON(t *testing.T) {
	t.Parallel()
	file := writeFile(t, fmt.Sprintf(explained, "ignore"))
	r := waybill(t, "config", "explain", "-c", file, "order.moved", "parcel.lost", "--json")
	require.Zero(t, r.code, r.stderr)
	require.JSONEq(t, `[
		{"type": "order.moved", "sinks": [{
			"sink": "partner", "kind": "http", "routes": ["order.*"],
			"parallelism": {"threshold": 4, "above": "sequential"},
			"retry": {"types": "order.*", "max_attempts": 2, "max_age": "48h", "initial": "1s", "multiplier": 2, "max": "1m30s", "jitter": 0},
			"timeout": "10s", "rate": "50/s, burst 100", "on_dead": "halt"
		}]},
		{"type": "parcel.lost", "unrouted": "ignore", "sinks": []}
	]`, r.stdout)

	r = waybill(t, "config", "explain", "-c", file, "parcel.lost")
	require.Equal(t, result{stdout: "parcel.lost: no route matches, so it is passed over (forwarder.unrouted: ignore)\n"}, r)
}

func TestConfigExplainRefusesWhatIsNoTypeAndAWrongFile(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "sinks: {a: {kind: http, on_dead: stop}}\nroutes:\n  a: [b]\n")
	r := waybill(t, "config", "explain", "-c", file, "a")
	require.Equal(t, result{code: exitUsage, stderr: file + ":1: sinks.a.on_dead is \"stop\": use continue or halt\n" +
		file + ":3: routes.a names the unknown sink \"b\"; did you mean a?\n"}, r)

	r = waybill(t, "config", "explain", "-c", file)
	require.Equal(t, result{code: exitUsage, stderr: "waybill: give a type of notifications, such as order.placed; see waybill config explain --help\n"}, r)

	r = waybill(t, "config", "explain", "-c", file, "order.*")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, `type name "order.*" contains '*'`)
}
