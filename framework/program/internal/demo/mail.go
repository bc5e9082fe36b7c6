package demo

import (
	"context"
	"embed"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/program/internal/receiver"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
)

//go:embed mail
var mailTemplates embed.FS

// openMail returns the destination of the email sink: the mail server with this URL, or one inside the
// process if the URL is "".
func openMail(url string) (destination, error) {
	if url != "" {
		return &relay{url: url, got: newArrivals()}, nil
	}
	return openMailbox()
}

func mailConfig(url string) *email.Config {
	return &email.Config{SMTP: url, From: "Shop <shop@example.com>", FS: mailTemplates, Templates: "mail"}
}

func newMailSink(url string) (*email.Sink, error) {
	return email.New(sinks.Instance{Name: mailSink}, *mailConfig(url))
}

func mailDelivery(s sinks.Sink) forwarder.Sink {
	return forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: mailserver.DefaultConnections}, Retry: retry}
}

// mailbox is a mail server inside the process.
type mailbox struct {
	*receiver.Mailbox
	got *arrivals
}

var _ destination = (*mailbox)(nil)

func openMailbox() (m *mailbox, err error) {
	m = &mailbox{got: newArrivals()}
	m.Mailbox, err = receiver.OpenMailbox(m.got.add)
	return m, err
}

func (m *mailbox) sink() (forwarder.Sink, error) {
	s, err := newMailSink(m.URL)
	return mailDelivery(s), err
}

func (m *mailbox) arrived() *arrivals { return m.got }

func (m *mailbox) counts() string { return "received" }

func (m *mailbox) catchUp(context.Context) error { return nil }

func (m *mailbox) close() error { return m.Close() }

// countedReceipts is what a relay counts, since the demo cannot see what the mail server received.
const countedReceipts = "receipts"

// relay is the user's mail server. The demo cannot see its mails, so it counts the sink's receipts:
// mails that the server has accepted.
type relay struct {
	url string
	got *arrivals
}

var _ destination = (*relay)(nil)

func (r *relay) sink() (forwarder.Sink, error) {
	s, err := newMailSink(r.url)
	return mailDelivery(&countedMails{Sink: s, got: r.got}), err
}

func (r *relay) arrived() *arrivals { return r.got }

func (r *relay) counts() string { return countedReceipts }

func (r *relay) catchUp(context.Context) error { return nil }

func (r *relay) close() error { return nil }

// countedMails is an email sink whose receipts are counted.
type countedMails struct {
	*email.Sink
	got *arrivals
}

var (
	_ sinks.Sink   = (*countedMails)(nil)
	_ sinks.Closer = (*countedMails)(nil)
)

func (s *countedMails) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	receipt, err := s.Sink.Deliver(ctx, d)
	if err == nil {
		s.got.add(d.ID)
	}
	return receipt, err
}
