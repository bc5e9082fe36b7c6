package email_test

import (
	"context"
	"fmt"
	"mime"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// folder returns the templates of one type with these files.
func folder(typeName string, files map[string]string) fstest.MapFS {
	made := make(fstest.MapFS)
	for file, content := range files {
		made[typeName+"/"+file] = &fstest.MapFile{Data: []byte(content)}
	}
	return made
}

var signedUp = folder("customer.signed-up", map[string]string{
	"to.tmpl":      "{{address .Payload.name .Payload.email}}\n",
	"subject.tmpl": "Willkommen, {{.Payload.name}} — schön!\n",
	"text.tmpl":    "Hallo {{.Payload.name}},\n\nKundennummer {{.Payload.number}}.\n",
	"html.tmpl":    "<p>Hallo <b>{{.Payload.name}}</b>, Nr. {{.Payload.number}}</p>\n",
})

func delivery(payload string) *notification.Delivery {
	return &notification.Delivery{
		Envelope: &notification.Envelope{
			ID:         "0197f3c2-6f0e-7cc0-b2cf-9d8f0e6f3c11",
			Type:       "customer.signed-up",
			Version:    1,
			OccurredOn: time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC),
			Payload:    []byte(payload),
		},
		Sink:    "mail",
		Attempt: 1,
	}
}

const jane = `{"name": "Jané <Doe>", "email": "jane@example.org", "number": 9007199254740993}`

func startServer(t testing.TB, c smtptest.Config) *smtptest.Server {
	t.Helper()
	server, err := smtptest.Start(c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Close()) })
	return server
}

func newSink(t testing.TB, c email.Config) *email.Sink {
	t.Helper()
	if c.From == "" {
		c.From = "Shöp <shop@example.com>"
	}
	if c.FS == nil {
		c.FS = signedUp
	}
	sink, err := email.New(sinks.Instance{Name: "mail"}, c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, sink.Close(context.Background())) })
	return sink
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestAMailHasTextAndHTMLPartsAndDecodableHeaders(t *testing.T) {
	server := startServer(t, smtptest.Config{})
	sink := newSink(t, email.Config{SMTP: server.URL(), ReplyTo: "help@example.com"})

	receipt, err := sink.Deliver(within(t), delivery(jane))

	require.NoError(t, err)
	assert.Equal(t, notification.Receipt("smtp 250 OK: queued as 1"), receipt)
	require.Len(t, server.Messages(), 1)
	m := server.Messages()[0]
	assert.Equal(t, "shop@example.com", m.From)
	assert.Equal(t, []string{"jane@example.org"}, m.To)
	assert.Equal(t, "Willkommen, Jané <Doe> — schön!", m.Subject())
	assert.Equal(t, "<0197f3c2-6f0e-7cc0-b2cf-9d8f0e6f3c11.mail@example.com>", m.Header.Get("Message-Id"))
	assert.Equal(t, "0197f3c2-6f0e-7cc0-b2cf-9d8f0e6f3c11", m.Header.Get("Waybill-Id"))
	assert.Equal(t, "auto-generated", m.Header.Get("Auto-Submitted"))
	date, err := m.Header.Date()
	require.NoError(t, err)
	assert.True(t, date.Equal(time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC)), date)
	for header, want := range map[string]mail.Address{
		"From":     {Name: "Shöp", Address: "shop@example.com"},
		"To":       {Name: "Jané <Doe>", Address: "jane@example.org"},
		"Reply-To": {Address: "help@example.com"},
	} {
		list, err := m.Header.AddressList(header)
		require.NoError(t, err, header)
		assert.Equal(t, []*mail.Address{&want}, list, header)
	}
	contentType, _, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	require.NoError(t, err)
	assert.Equal(t, "multipart/alternative", contentType)
	text, err := m.Text()
	require.NoError(t, err)
	assert.Equal(t, "Hallo Jané <Doe>,\n\nKundennummer 9007199254740993.\n", text)
	html, err := m.HTML()
	require.NoError(t, err)
	assert.Equal(t, "<p>Hallo <b>Jané &lt;Doe&gt;</b>, Nr. 9007199254740993</p>\n", html)
}

func TestARepeatedDeliveryIsByteForByteTheSameMail(t *testing.T) {
	server := startServer(t, smtptest.Config{})
	for range 3 {
		// Each attempt has a new sink, because a repeat usually comes from another process.
		_, err := newSink(t, email.Config{SMTP: server.URL()}).Deliver(within(t), delivery(jane))
		require.NoError(t, err)
	}
	messages := server.Messages()
	require.Len(t, messages, 3)
	assert.Equal(t, string(messages[0].Raw), string(messages[1].Raw))
	assert.Equal(t, string(messages[0].Raw), string(messages[2].Raw))
}

func TestTwoSinksGiveANotificationDifferentMessageIDs(t *testing.T) {
	server := startServer(t, smtptest.Config{})
	for _, name := range []string{"mail", "ops"} {
		sink, err := email.New(sinks.Instance{Name: name}, email.Config{SMTP: server.URL(), From: "a@example.com", FS: signedUp})
		require.NoError(t, err)
		_, err = sink.Deliver(within(t), delivery(jane))
		require.NoError(t, err)
		require.NoError(t, sink.Close(within(t)))
	}
	messages := server.Messages()
	assert.NotEqual(t, messages[0].Header.Get("Message-Id"), messages[1].Header.Get("Message-Id"))
}

func TestTheDateOfAScheduledMailIsWhenItWasDue(t *testing.T) {
	server := startServer(t, smtptest.Config{})
	sink := newSink(t, email.Config{SMTP: server.URL()})
	d := delivery(jane)
	d.DeliverAt = d.OccurredOn.Add(72 * time.Hour)
	_, err := sink.Deliver(within(t), d)
	require.NoError(t, err)
	date, err := server.Messages()[0].Header.Date()
	require.NoError(t, err)
	assert.True(t, date.Equal(d.DeliverAt), date)
}

func TestTheReceiptIsTheServersReplyInOneShortLine(t *testing.T) {
	server := startServer(t, smtptest.Config{OnMessage: func(context.Context, smtptest.Message) error {
		return smtptest.Reply(250, "queued as 7F3 "+strings.Repeat("é", 500))
	}})
	receipt, err := newSink(t, email.Config{SMTP: server.URL()}).Deliver(within(t), delivery(jane))
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(string(receipt), "smtp 250 queued as 7F3 éé"), receipt)
	assert.Less(t, len(receipt), 230)
}

func TestBccRecipientsAreInNoHeader(t *testing.T) {
	server := startServer(t, smtptest.Config{})
	sink := newSink(t, email.Config{SMTP: server.URL(), ReplyTo: "help@example.com", FS: folder("customer.signed-up", map[string]string{
		"to.tmpl":       "{{range .Payload.to}}{{.}},\n{{end}}",
		"cc.tmpl":       "b@example.org, c@example.org",
		"bcc.tmpl":      "{{if .Payload.audit}}secret@example.org{{end}}",
		"reply-to.tmpl": "Orders <orders@example.com>",
		"subject.tmpl":  "s", "text.tmpl": "t",
	})})
	_, err := sink.Deliver(within(t), delivery(`{"to": ["a@example.org", "b@example.org"], "audit": true}`))
	require.NoError(t, err)
	_, err = sink.Deliver(within(t), delivery(`{"to": ["a@example.org"], "audit": null}`))
	require.NoError(t, err)

	first, second := server.Messages()[0], server.Messages()[1]
	assert.Equal(t, []string{"a@example.org", "b@example.org", "c@example.org", "secret@example.org"}, first.To)
	assert.Equal(t, "<a@example.org>, <b@example.org>", first.Header.Get("To"))
	assert.Equal(t, "<b@example.org>, <c@example.org>", first.Header.Get("Cc"))
	assert.Equal(t, `"Orders" <orders@example.com>`, first.Header.Get("Reply-To"))
	assert.NotContains(t, string(first.Raw), "secret")
	assert.Equal(t, []string{"a@example.org", "b@example.org", "c@example.org"}, second.To)
}

func TestAMailWithOneBodyIsNotAMultipart(t *testing.T) {
	for file, contentType := range map[string]string{"text.tmpl": "text/plain", "html.tmpl": "text/html"} {
		t.Run(file, func(t *testing.T) {
			server := startServer(t, smtptest.Config{})
			sink := newSink(t, email.Config{SMTP: server.URL(), FS: folder("customer.signed-up", map[string]string{
				"to.tmpl": "a@example.org", "subject.tmpl": "s", file: "Grüße\n.\nend",
			})})
			_, err := sink.Deliver(within(t), delivery(`{}`))
			require.NoError(t, err)
			m := server.Messages()[0]
			assert.Equal(t, contentType+"; charset=UTF-8", m.Header.Get("Content-Type"))
			body := m.Text
			if file == "html.tmpl" {
				body = m.HTML
			}
			got, err := body()
			require.NoError(t, err)
			assert.Equal(t, "Grüße\n.\nend", strings.TrimSpace(got))
		})
	}
}

func TestConnectionsAreReusedAndNeverMoreThanConfigured(t *testing.T) {
	server := startServer(t, smtptest.Config{CountOnly: true})
	sink := newSink(t, email.Config{SMTP: server.URL(), Connections: 3})
	ctx := within(t)
	var group sync.WaitGroup
	for i := range 200 {
		group.Go(func() {
			d := delivery(jane)
			d.ID = fmt.Sprint("n", i)
			_, err := sink.Deliver(ctx, d)
			assert.NoError(t, err)
		})
	}
	group.Wait()
	assert.Equal(t, 200, server.Count())
	assert.LessOrEqual(t, server.Connections(), 3)
	require.NoError(t, sink.CheckHealth(ctx))
	assert.LessOrEqual(t, server.Connections(), 3, "a health check uses an idle connection")
	require.NoError(t, sink.Close(ctx))
	require.Eventually(t, func() bool { return server.OpenConnections() == 0 }, time.Minute, time.Millisecond)
	_, err := sink.Deliver(ctx, delivery(jane))
	assert.ErrorIs(t, err, mailserver.ErrClosed)
}
