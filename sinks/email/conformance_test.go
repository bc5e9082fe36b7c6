package email_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestConformance(t *testing.T) {
	var server *smtptest.Server
	start := func(t *testing.T, at smtptest.Config) sinks.Sink {
		server = startServer(t, at)
		return unopened(t, server.URL())
	}
	broken := func(recipient func(context.Context, string) error) func(*testing.T) sinks.Sink {
		return func(t *testing.T) sinks.Sink { return start(t, smtptest.Config{OnRecipient: recipient}) }
	}
	to := func(n int, address string) *notification.Delivery {
		d := sinktest.NewDelivery(n)
		d.Type = "customer.signed-up"
		d.Payload = fmt.Appendf(nil, `{"name": "Jané", "email": %q, "number": %d}`, address, n)
		return d
	}
	sinktest.Run(t, sinktest.Subject{
		New: func(t *testing.T) sinks.Sink {
			return start(t, smtptest.Config{OnRecipient: func(_ context.Context, to string) error {
				if strings.HasPrefix(to, "nobody@") {
					return smtptest.Reply(550, "unknown")
				}
				return nil
			}})
		},
		Received: func(*testing.T) []notification.Envelope {
			var es []notification.Envelope
			for _, m := range server.Messages() {
				// A mail's date has only seconds, so the time is not compared.
				es = append(es, notification.Envelope{ID: m.Header.Get("Waybill-Id")})
			}
			return es
		},
		Collected: func(t *testing.T) (all []sinktest.Collected) {
			for _, m := range server.Messages() {
				text, err := m.Text()
				require.NoError(t, err)
				c := sinktest.Collected{ID: m.Header.Get("Waybill-Id"), Raw: m.Raw}
				for _, id := range strings.Fields(text) {
					c.Members = append(c.Members, notification.Envelope{ID: id})
				}
				all = append(all, c)
			}
			return all
		},
		Delivery: func(n int) *notification.Delivery { return to(n, "jane@example.org") },
		Refused:  func(n int) *notification.Delivery { return to(n, "nobody@example.org") },
		Broken: map[sinks.Class]func(*testing.T) sinks.Sink{
			sinks.ClassUnavailable: func(t *testing.T) sinks.Sink { return unopened(t, "smtp://127.0.0.1:1") },
			sinks.ClassThrottled:   broken(saying(451, "4.7.500 Server busy")),
			sinks.ClassTransient:   broken(refuse(450)),
			sinks.ClassPermanent:   broken(refuse(550)),
		},
		Stuck: broken(func(ctx context.Context, _ string) error {
			<-ctx.Done() // ends when the server is closed
			return ctx.Err()
		}),
		Receipts: true,
	})
}

// digest lists what is in a mail.
var digest = folder("customer.signed-up", map[string]string{
	"to.tmpl":      "{{.Payload.email}}",
	"subject.tmpl": "{{.Count}} new:{{range .Items}} {{.Payload.name}}{{end}}",
	"text.tmpl":    "{{range .Items}}{{.ID}}\n{{end}}",
})

func unopened(t *testing.T, url string) sinks.Sink {
	t.Helper()
	sink, err := email.New(sinks.Instance{Name: "mail"}, email.Config{
		SMTP: url, From: "shop@example.com", FS: digest, Timeout: 30 * time.Second,
	})
	require.NoError(t, err)
	return sink
}
