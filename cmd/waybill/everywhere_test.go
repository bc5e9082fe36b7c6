package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks/email/smtptest"
	"github.com/waybill-go/waybill/sinks/kafka/kafkatest"
)

// TestPlainSQLReachesATopicAnEndpointAndAMailbox is the main job with nothing but
// SQL on one side and servers on the other.
func TestPlainSQLReachesATopicAnEndpointAndAMailbox(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		broker := kafkatest.Fake(t)
		topic := broker.CreateTopic(t, 3, nil)
		endpoint := newReceiver(t)
		mailbox, err := smtptest.Start(smtptest.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, mailbox.Close()) })
		templates := t.TempDir()
		for name, text := range map[string]string{
			"to":      `{{address .Payload.name .Payload.email}}`,
			"subject": `Order {{.Payload.order}}`,
			"text":    `Thank you, {{.Payload.name}}.`,
		} {
			path := filepath.Join(templates, "order.placed", name+".tmpl")
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		}
		file := writeFile(t, fmt.Sprintf(`
database: %q
sinks:
  events: {kind: kafka, with: {brokers: [%q], topic: %s}}
  partner: {kind: http, with: {url: %q}}
  mail: {kind: email, with: {smtp: %q, from: "Shop <shop@example.com>", templates: %q}}
routes:
  order.placed: [events, partner, mail]
  "customer.*": [events]
`, o.address, broker.Brokers[0], topic, endpoint.URL, mailbox.URL(), templates))

		o.migrate(t)
		_, err = o.db.ExecContext(t.Context(), `INSERT INTO outbox (type, key, payload) VALUES
			('order.placed', 'o-17', '{"order": 17, "name": "Ada", "email": "ada@example.com"}'),
			('customer.moved', 'c-1', '{}')`)
		require.NoError(t, err)
		f := startForward(t, "-c", file)

		records := broker.Consume(t, topic, 2)
		keys := []string{string(records[0].Key), string(records[1].Key)}
		require.ElementsMatch(t, []string{"o-17", "c-1"}, keys)
		endpoint.await(t, 1)
		require.NoError(t, mailbox.Wait(t.Context(), 1))
		mail := mailbox.Messages()[0]
		require.Equal(t, []string{"ada@example.com"}, mail.To)
		require.Equal(t, "Order 17", mail.Subject())
		text, err := mail.Text()
		require.NoError(t, err)
		require.Contains(t, text, "Thank you, Ada.")

		r := f.end(t)
		require.Zero(t, r.code, r.stderr)
		require.NotContains(t, r.stderr, "level=ERROR")
	})
}
