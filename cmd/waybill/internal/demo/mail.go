package demo

import (
	"bufio"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
)

//go:embed mail
var mailTemplates embed.FS

// mailID is the header in which the email sink writes the notification's id.
const mailID = "Waybill-Id"

// openMail returns the email sink's receiver: a mail server inside the process,
// or the one with that URL.
func openMail(url string) (receiver, error) {
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
	return forwarder.Sink{Sink: s, Parallelism: forwarder.Parallelism{Threshold: email.DefaultConnections}, Retry: retry}
}

// mailbox is a mail server inside the process that counts mails and keeps none,
// so that any number of them fits.
type mailbox struct {
	server *smtp.Server
	url    string
	served chan error
	got    *arrivals
}

var _ receiver = (*mailbox)(nil)

// openMailbox listens on a free port of the loopback interface.
func openMailbox() (*mailbox, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a mail server: %w", err)
	}
	m := &mailbox{url: "smtp://" + listener.Addr().String(), served: make(chan error, 1), got: newArrivals()}
	m.server = smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &conversation{got: m.got}, nil }))
	m.server.Domain = "localhost"
	go func() { m.served <- m.server.Serve(listener) }()
	return m, nil
}

func (m *mailbox) sink() (forwarder.Sink, error) {
	s, err := newMailSink(m.url)
	return mailDelivery(s), err
}

func (m *mailbox) arrived() *arrivals { return m.got }

func (m *mailbox) counts() string { return "received" }

func (m *mailbox) catchUp(context.Context) error { return nil }

// close waits for the goroutines of connections that the sink has closed.
func (m *mailbox) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := m.server.Shutdown(ctx)
	if served := <-m.served; !errors.Is(served, smtp.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// conversation is one client's; the server calls its methods one at a time.
type conversation struct{ got *arrivals }

func (*conversation) Mail(string, *smtp.MailOptions) error { return nil }

func (*conversation) Rcpt(string, *smtp.RcptOptions) error { return nil }

func (c *conversation) Data(mail io.Reader) error {
	reader := bufio.NewReader(mail)
	header, err := textproto.NewReader(reader).ReadMIMEHeader()
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, reader); err != nil {
		return err
	}
	c.got.add(header.Get(mailID))
	return nil
}

func (*conversation) Reset() {}

func (*conversation) Logout() error { return nil }

// countedReceipts says that no receiver can be asked.
const countedReceipts = "receipts"

// relay is a mail server of somebody's own. What became of a mail in it cannot be
// seen from here, so the sink's receipts are counted: a mail that the server took.
type relay struct {
	url string
	got *arrivals
}

var _ receiver = (*relay)(nil)

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
