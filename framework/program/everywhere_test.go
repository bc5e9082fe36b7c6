package program

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/email/smtptest"
	"github.com/waybill-go/waybill/sinks/jsonlines"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// handler is the program of a process sink. It writes the lines that it gets to a file.
const handler = `echo '{"line":"hello","version":1}'
while read -r line; do
	case $line in *'"line":"deliver"'*)
		printf '%s\n' "$line" >>taken
		number=${line#*'"delivery":'}
		printf '{"line":"answer","delivery":%d,"outcome":"ok"}\n' "${number%%,*}";;
	esac
done
`

// TestPlainSQLReachesEverySink publishes with plain SQL and delivers to a sink of each kind, with one
// configuration file.
func TestPlainSQLReachesEverySink(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		broker := kafkatest.Fake(t)
		topic := broker.CreateTopic(t, 3, nil)
		endpoint, customer := newReceiver(t), newReceiver(t)
		mailbox, err := smtptest.Start(smtptest.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, mailbox.Close()) })
		folder := t.TempDir()
		for name, text := range map[string]string{
			"mail/order.placed/to.tmpl":      `{{address .Payload.name .Payload.email}}`,
			"mail/order.placed/subject.tmpl": `Order {{.Payload.order}}`,
			"mail/order.placed/text.tmpl":    `Thank you, {{.Payload.name}}.`,
			"handler.sh":                     handler,
		} {
			path := filepath.Join(folder, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
		file := writeFile(t, fmt.Sprintf(`
database: %q
sinks:
  events: {kind: kafka, with: {brokers: [%q], topic: %s}}
  partner: {kind: http, with: {url: %q}}
  mail: {kind: email, with: {smtp: %q, from: "Shop <shop@example.com>", templates: %q}}
  program: {kind: process, with: {command: [sh, handler.sh], dir: %q}}
  archive: {kind: jsonlines, with: {path: %q}}
  customers: {kind: webhooks, with: {allow_http: true, guard: {mode: "off"}}}
routes:
  order.placed: [events, partner, mail, program, archive, customers]
  "customer.*": [events, program, archive]
`, o.address, broker.Brokers[0], topic, endpoint.URL, mailbox.URL(), filepath.Join(folder, "mail"), folder, filepath.Join(folder, "archive")))
		kinds := ownKinds(t)
		require.Len(t, kinds.Names(), 8, "a new kind needs a sink in this test, unless it needs Go code, like go and function")
		checked := waybill(t, "config", "check", "--timeout", "1m", "-c", file)
		require.Zero(t, checked.code, checked.stdout)
		require.Equal(t, 1, strings.Count(checked.stdout, string(notChecked)), "customers' endpoints are not in the configuration")

		o.migrate(t)
		added := waybill(t, "endpoints", "add", "--tenant", "acme", "--url", customer.URL, "-c", file)
		require.Zero(t, added.code, added.stderr)
		_, err = o.db.ExecContext(t.Context(), `INSERT INTO outbox (type, key, metadata, payload) VALUES
			('order.placed', 'o-17', '{"tenant": "acme"}', '{"order": 17, "name": "Ada", "email": "ada@example.com"}'),
			('customer.moved', 'c-1', '{}', '{}')`)
		require.NoError(t, err)
		f := startForward(t, "-c", file)

		keys := []string{"o-17", "c-1"}
		var got []string
		for _, record := range broker.Consume(t, topic, 2) {
			got = append(got, string(record.Key))
		}
		require.ElementsMatch(t, keys, got)
		endpoint.await(t, 1)
		customer.await(t, 1)
		require.NoError(t, mailbox.Wait(t.Context(), 1))
		mail := mailbox.Messages()[0]
		require.Equal(t, []string{"ada@example.com"}, mail.To)
		require.Equal(t, "Order 17", mail.Subject())
		text, err := mail.Text()
		require.NoError(t, err)
		require.Contains(t, text, "Thank you, Ada.")
		for _, name := range []string{"taken", "archive"} {
			require.Eventually(t, func() bool { return len(keysIn(filepath.Join(folder, name))) == 2 }, patience, 10*time.Millisecond, name)
			require.ElementsMatch(t, keys, keysIn(filepath.Join(folder, name)))
		}

		r := f.end(t)
		require.Zero(t, r.code, r.stderr)
		require.NotContains(t, r.stderr, "level=ERROR")
	})
}

// keysIn returns the keys in a file of lines, which may still be written.
func keysIn(path string) (keys []string) {
	text, _ := os.ReadFile(path) // the file may not exist yet
	for text := range bytes.Lines(text) {
		var line jsonlines.Line
		if json.Unmarshal(text, &line) == nil {
			keys = append(keys, line.Key)
		}
	}
	return keys
}
