// Package email is the sink kind "email": each notification becomes one mail,
// written by templates and handed to a mail server by SMTP.
//
// A type's templates are the files of a folder with the type's name:
//
//	mail/
//	  layout.html.tmpl          optional, around every html.tmpl
//	  layout.text.tmpl          optional, around every text.tmpl
//	  order.placed/
//	    to.tmpl                 recipients, comma-separated
//	    subject.tmpl
//	    text.tmpl               text.tmpl, html.tmpl or both
//	    html.tmpl
//	    html.de.tmpl            the same for another locale; subject and text too
//	    cc.tmpl bcc.tmpl reply-to.tmpl locale.tmpl   optional
//	    list-unsubscribe.tmpl   optional: URLs
//	    attachments.tmpl        optional: names of files, or {{attachment ...}}
//	    logo.png                shown where the html says cid:logo.png
//	  default/                  optional, for what a type's folder lacks
//	    to.tmpl
//
// A template sees [Data]; a field that a payload lacks is an error, not a hole
// in the mail. Where addresses stand, an expression gives one: a value with
// several is an error, unless the function addresses takes it. html.tmpl is
// html/template, which escapes by context; all others are text/template.
//
// # Repeats
//
// A delivery can come twice (see [sinks.Sink]). The mail is then the same byte
// for byte: Message-ID, Date and MIME boundaries derive from the envelope, so
// mailboxes that drop duplicates drop this one.
//
// A mail has one transaction for all its recipients. Those whom the server
// refuses for good are left out, and the receipt names them. When one is refused
// for the moment, nothing is sent to anyone, and a retry cannot reach a recipient
// twice.
package email

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// Kind is the sink kind email.
func Kind() sinks.Kind {
	return sinks.NewKind("email", "one email for each notification, from templates, by SMTP",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) },
		sinks.Answer{Says: "250 at the end of the mail", Means: "delivered, to all recipients that were not refused; the receipt is `smtp 250 queued as 7F3`, and names those who were"},
		sinks.Answer{Says: "4xx: too much at once, anywhere", Means: "throttled for 1 s to 10 min, by what is said"},
		sinks.Answer{Says: "connection, greeting, EHLO, TLS, authentication, token: any refusal, and silence", Means: "unavailable"},
		sinks.Answer{Says: "`MAIL FROM`: 5xx about the size, or about a recipient's address that is not ASCII", Means: "permanent"},
		sinks.Answer{Says: "`MAIL FROM`: any other 4xx and 5xx, and silence", Means: "unavailable, since the sender comes from the configuration"},
		sinks.Answer{Says: "`RCPT TO`, `DATA`, end of the mail: 421, 502, 503, 530, 534, 535, 538, and statuses about sender, account or machine", Means: "unavailable"},
		sinks.Answer{Says: "`RCPT TO`, `DATA`, end of the mail: other 4xx, even to one recipient; connection lost, or no answer within `timeout`", Means: "transient"},
		sinks.Answer{Says: "`RCPT TO`, `DATA`, end of the mail: other 5xx", Means: "permanent; if it is to some recipients only, the others get the mail"},
		sinks.Answer{Says: "nothing is asked: the type has no templates", Means: "unknown"},
		sinks.Answer{Says: "nothing is asked: the templates fail, the mail is too large, or the server lacks SMTPUTF8", Means: "permanent; unavailable if only the sender's address is not ASCII"},
	)
}

// Sink sends each delivery as one email. Its methods may be called in parallel;
// at most Config.Connections conversations with the server run at once, further
// calls wait for their turn.
type Sink struct {
	composer *Composer
	pool     *pool
	logger   *slog.Logger
}

var (
	_ sinks.Sink          = (*Sink)(nil)
	_ sinks.Closer        = (*Sink)(nil)
	_ sinks.HealthChecker = (*Sink)(nil)
)

// New makes a sink. It reads and parses all templates and connects to nothing;
// a connection is made when a delivery needs one. Zero fields of c get their
// defaults. All mistakes in c and in the templates are reported at once. A
// password that c lets travel in the clear is logged as a warning.
//
// in.Dial opens the connections to the mail server, and those to c.OAuth2's authorization
// server unless in.HTTPClient makes those requests.
func New(in sinks.Instance, c Config) (*Sink, error) {
	c.SetDefaults()
	invalid := c.Validate()
	composer, err := newComposer(in, c)
	if err := errors.Join(invalid, err); err != nil {
		return nil, err
	}
	server, err := newServer(c, in)
	if err != nil {
		return nil, err
	}
	logger := cmp.Or(in.Logger, slog.New(slog.DiscardHandler))
	if warning := c.tlsWarning(); warning != "" {
		logger.Warn(warning, "server", server.address)
	}
	return &Sink{composer: composer, pool: newPool(server, c.Connections, logger), logger: logger}, nil
}

// Deliver sends the mail and returns the server's final reply as the receipt,
// such as "smtp 250 OK: queued as 7F3", with the recipients that it refuses.
//
// Errors: a type without templates is unknown. What else the envelope or the
// templates cause is permanent; so is a 5xx reply, if it is to the mail, its size
// or all recipients. A 4xx reply to those is transient, and so is a timeout or a
// connection lost once the server has accepted the sender: the reason may be this
// mail. What says nothing of this mail is unavailable: no connection, TLS,
// authentication or token, a refusal of the sender, who is the same for all mails,
// 421, and a server that stays silent when a mail begins. A server that says that
// too much comes at once throttles the sink. docs/sinks-email.md has the whole
// table.
//
// When ctx is cancelled the conversation is cut and ctx's error is returned; if
// the whole mail was already sent by then, the server may deliver it all the
// same, and the next attempt repeats it.
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	m, err := s.composer.compose(d.Envelope)
	if err != nil {
		err = fmt.Errorf("%s %s: %w", d.Type, d.ID, err)
		if errors.Is(err, ErrNoTemplate) {
			return "", sinks.Unknown(err) // a deploy that is under way may bring it
		}
		return "", sinks.Permanent(err)
	}
	var done handedOver
	err = s.pool.use(ctx, func(c *connection) (err error) {
		done, err = c.send(ctx, m)
		return err
	})
	if err != nil {
		return "", classify(err)
	}
	if len(done.refused) > 0 {
		s.logger.WarnContext(ctx, "the mail server refuses some recipients for good; the others have the mail",
			"type", d.Type, "id", d.ID, "refused", refusals(done.refused))
	}
	return done.receipt(), nil
}

// CheckHealth asks the mail server for a sign of life (NOOP), over a connection
// of the pool or a new one. The error's class is that of a delivery.
func (s *Sink) CheckHealth(ctx context.Context) error {
	return classify(s.pool.use(ctx, func(c *connection) error { return c.noop(ctx) }))
}

// Close takes leave of the server on all connections that are idle and closes
// them; after ctx ended it closes them without waiting for an answer.
// Deliveries after Close fail with ErrClosed.
func (s *Sink) Close(ctx context.Context) error {
	s.pool.close(ctx)
	return nil
}
