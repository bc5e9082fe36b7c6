package program

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfigShowKnowsTheFormatOfSignedRequests(t *testing.T) {
	t.Parallel()
	file := writeFile(t, `
database: sqlite:outbox.db
sinks:
  partner: {kind: http, with: {url: "https://partner.example", secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}}
  plain: {kind: http, with: {url: "https://partner.example"}}
routes: {"*": [partner, plain]}
`)
	r := waybill(t, "config", "show", "-c", file)
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "format: envelope\n")
	require.Contains(t, r.stdout, "format: json\n")
	require.Contains(t, r.stdout, "secret: '***'\n")
}

func TestConfigShowFillsInDefaultsAndMasksSecrets(t *testing.T) {
	t.Parallel()
	file := writeFile(t, `
database: postgres://app:hunter2@localhost/app
forwarder: {name: left}
sinks:
  events: {kind: kafka, with: {brokers: ["localhost:9092"], topic: "${TOPIC}"}}
  lines: {kind: jsonlines, retry: {types: {"order.*": {max_attempts: 3}}}, rate: 100/m}
  program:
    kind: process
    with: {command: [run, --token, hunter2, "--password=hunter2"], env: {DB_PASSWORD: hunter2, LANG: C}}
routes: {"*": [events, lines, program]}
`)
	environ := []string{"TOPIC=hunter2", "WAYBILL_SINKS_EVENTS_TIMEOUT=90s"}
	r := waybillWith(t, environ, "config", "show", "-c", file)
	require.Equal(t, result{stdout: `database: postgres://app:***@localhost/app
outbox:
  prefix: outbox
  lanes: 1
  payload: json
  receipts: false
  retention: 72h
  inbox_retention: 720h
forwarder:
  name: left
  poll: 50ms
  lease: 15s
  shutdown_timeout: 20s
  unrouted: park
  connections: 8
  listen: true
sinks:
  events:
    kind: kafka
    with:
      brokers: ['localhost:9092']
      topic: ${TOPIC}
      client: franz-go
      acks: all
      compression: none
      exactly_once: false
      timeout: 10s
      max_message_bytes: 1048576
      format: json
      collection: records
    parallelism:
      threshold: 16
      above: bounded
    retry:
      max_age: 24h
      initial: 1s
      max: 15m
    on_dead: continue
    timeout: 1m30s
    breaker:
      max_pause: 5s
      off: false
    erased: drop
    trace: pass
  lines:
    kind: jsonlines
    with:
      path: '-'
      fsync: false
    parallelism:
      threshold: 16
      above: bounded
    retry:
      max_age: 24h
      initial: 1s
      max: 15m
      types:
        order.*:
          max_age: 24h
          max_attempts: 3
          initial: 1s
          max: 15m
    on_dead: continue
    timeout: 30s
    rate: 100/m
    breaker:
      max_pause: 5s
      off: false
    erased: drop
    trace: pass
  program:
    kind: process
    with:
      command: [run, --token, '***', --password=***]
      env:
        DB_PASSWORD: '***'
        LANG: '***'
      grace: 5s
      start_timeout: 30s
      max_line_bytes: 4194304
    parallelism:
      threshold: 16
      above: bounded
    retry:
      max_age: 24h
      initial: 1s
      max: 15m
    on_dead: continue
    timeout: 30s
    breaker:
      max_pause: 5s
      off: false
    erased: drop
    trace: pass
routes:
  '*': [events, lines, program]
`}, r)

	r = waybillWith(t, environ, "config", "show", "-c", file, "--json")
	require.Zero(t, r.code, r.stderr)
	require.NotContains(t, r.stdout, "hunter2")
	var shown struct {
		Forwarder struct{ Lease string }
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &shown))
	require.Equal(t, "15s", shown.Forwarder.Lease)

	r = waybill(t, "config", "show", "-c", file)
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "the environment variable TOPIC is not set")
}
