package program

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

// mailTemplates returns a folder with templates for order.placed.
func mailTemplates(t testing.TB) (folder string) {
	t.Helper()
	folder = t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "order.placed"), 0o755))
	for name, text := range map[string]string{"to": "ada@example.com", "subject": "Order", "text": "Thank you."} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "order.placed", name+".tmpl"), []byte(text), 0o600))
	}
	return folder
}

func TestConfigCheckChecksEachSink(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	database, lines := filepath.Join(folder, "outbox.db"), filepath.Join(folder, "lines.jsonl")
	partner := newReceiver(t)
	mailbox, err := smtptest.Start(smtptest.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mailbox.Close()) })
	file := writeFile(t, fmt.Sprintf(`
database: %q
sinks:
  partner: {kind: http, with: {url: %q}}
  mail: {kind: email, with: {smtp: %q, from: shop@example.com, templates: %q}}
  log: {kind: jsonlines, with: {path: %q}}
  spare: {kind: http, with: {url: %[2]q}}
routes:
  order.placed: [partner, mail]
  "*": [log, partner]
`, "sqlite:"+database, partner.URL, mailbox.URL(), mailTemplates(t), lines))

	r := waybill(t, "config", "check", "-c", file)
	require.Equal(t, result{stdout: ` SINK     KIND       HEALTH   ROUTES           ERROR
 log      jsonlines  healthy  *                -
 mail     email      healthy  order.placed     -
 partner  http       healthy  *, order.placed  -
 spare    http       healthy  -                -
`}, r)

	r = waybill(t, "config", "check", "-c", file, "--offline", "--json")
	require.Zero(t, r.code, r.stderr)
	require.JSONEq(t, `{"mistakes": [], "sinks": [
		{"sink": "log", "kind": "jsonlines", "health": "not checked", "routes": ["*"]},
		{"sink": "mail", "kind": "email", "health": "not checked", "routes": ["order.placed"]},
		{"sink": "partner", "kind": "http", "health": "not checked", "routes": ["*", "order.placed"]},
		{"sink": "spare", "kind": "http", "health": "not checked", "routes": []}
	]}`, r.stdout)

	bodies, _ := partner.bodies()
	require.Zero(t, bodies, "nothing is delivered")
	require.Empty(t, mailbox.Messages())
	require.NoFileExists(t, database, "the database is not opened")
	require.NoFileExists(t, lines)
}

func TestConfigCheckFailsIfASinkCannotBeReached(t *testing.T) {
	t.Parallel()
	file := writeFile(t, fmt.Sprintf(`
database: sqlite:outbox.db
sinks:
  good: {kind: http, with: {url: %q}}
  gone: {kind: http, with: {url: "http://user:hunter2@127.0.0.1:1/"}}
  missing: {kind: process, with: {command: [/does/not/exist]}}
routes: {"*": [good, gone, missing]}
`, newReceiver(t).URL))

	r := waybill(t, "config", "check", "-c", file)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "waybill: not healthy: gone, missing\n")
	require.Regexp(t, `\n gone +http +not healthy +\* +.*connection refused\n good +http +healthy +\* +-\n missing +process +not healthy +\* +open: .*\n$`, r.stdout)
	require.NotContains(t, r.stdout+r.stderr, "hunter2")

	r = waybill(t, "config", "check", "-c", file, "--json")
	require.Equal(t, exitFailed, r.code)
	var view checkView
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &view))
	require.Len(t, view.Sinks, 3)
	require.Equal(t, notHealthy, view.Sinks[0].Health)
	require.Contains(t, view.Sinks[0].Error, "connection refused")

	r = waybill(t, "config", "check", "-c", file, "--offline")
	require.Zero(t, r.code, r.stderr)
}

func TestConfigCheckWaitsNoLongerThanItsTimeout(t *testing.T) {
	t.Parallel()
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts connections but never answers
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, silent.Close()) })
	file := writeFile(t, fmt.Sprintf(`
database: sqlite:outbox.db
sinks:
  mail: {kind: email, with: {smtp: "smtp://%s", from: shop@example.com, templates: %q}}
routes: {"*": [mail]}
`, silent.Addr(), mailTemplates(t)))

	began := time.Now()
	r := waybill(t, "config", "check", "-c", file, "--timeout", "50ms")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stdout, "no answer within 50ms")
	require.Less(t, time.Since(began), 25*time.Second, "the sink's own limit is 30s")
}

func TestConfigCheckCanBeInterrupted(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "database: sqlite:outbox.db\nsinks: {a: {kind: http, with: {url: \"http://127.0.0.1:1/\"}}}\nroutes: {a: [a]}\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, exitSignal, Run(ctx, Call{[]string{"config", "check", "-c", file}, nil, io.Discard, io.Discard}))
}

func TestConfigCheckListsMistakesAsForwardDoes(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "outbox: {lanes: 2000}\nsinks:\n  mail: {kind: emial, on_dead: stop}\nroutes:\n  a: [mial]\n")
	forwarded := waybill(t, "forward", "-c", file)
	require.Equal(t, exitUsage, forwarded.code)
	require.Contains(t, forwarded.stderr, file+":3: ")
	require.Equal(t, forwarded, waybill(t, "config", "check", "-c", file))

	r := waybill(t, "config", "check", "-c", file, "--json")
	require.Equal(t, exitUsage, r.code)
	require.Equal(t, forwarded.stderr, r.stderr)
	var view checkView
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &view))
	require.Empty(t, view.Sinks)
	require.Contains(t, view.Mistakes, mistakeView{file, 5, `routes.a names the unknown sink "mial"; did you mean mail?`})
}

func TestAKeyOfAKindInTheWrongPlaceIsExplained(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "database: sqlite:outbox.db\nsinks:\n  a:\n    kind: http\n    with:\n    url: https://partner.example\nroutes: {\"*\": [a]}\n")
	r := waybill(t, "config", "check", "-c", file)
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, file+`:6: sinks.a: unknown key "url"; known are `)
	require.Contains(t, r.stderr, "; the kind's settings belong below with\n")
}

func TestWrongUsageOfConfigCheckIsExplained(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args   []string
		stderr string
	}{
		{[]string{"config", "chekc"}, "unknown command \"chekc\"; did you mean check?; see waybill config --help\n"},
		{[]string{"config", "check"}, "there is no waybill.yaml in this folder: name a configuration file with -c; see waybill config check --help\n"},
		{[]string{"config", "check", "--timeout", "0s"}, "--timeout is 0s: use more than 0; see waybill config check --help\n"},
	} {
		require.Equal(t, result{code: exitUsage, stderr: "waybill: " + c.stderr}, waybill(t, c.args...))
	}
}
