// Package email delivers each notification as one email, which templates render and a
// mail server accepts by SMTP.
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
//	    text.v2.tmpl            for payloads of version 2 and later
//	    cc.tmpl bcc.tmpl reply-to.tmpl locale.tmpl   optional
//	    list-unsubscribe.tmpl   optional: URLs
//	    attachments.tmpl        optional: names of files, or {{attachment ...}}
//	    logo.png                shown where the html says cid:logo.png
//	  default/                  optional, for what a type's folder lacks
//	    to.tmpl
//	  collection/               optional, for collections of several types
//	    subject.tmpl
//
// A template gets [Data]. A field that is missing in a payload is an error, so that no
// mail has gaps. In templates of addresses, each expression must result in one address;
// for a value with several, use the function addresses. html.tmpl is an html/template,
// which escapes by context; all others are text/template.
//
// # Collections
//
// A collection is one mail, such as a digest. Its templates list what is in it:
//
//	{{.Count}} new comments
//	{{range .Items}}{{.Payload.author}}: {{.Payload.text}}
//	{{end}}
//
// See [Sink.DeliverCollection].
//
// # Repeats
//
// A delivery can come twice (see [sinks.Sink]). The mail is then identical, because
// Message-ID, Date and MIME boundaries are derived from the envelope, so mailboxes that
// drop duplicates drop the second one.
//
// A mail has one SMTP transaction for all its recipients. The mail is not sent to
// recipients that the server refuses permanently, and the receipt names them. If the
// server refuses a recipient temporarily, the mail is sent to none of them, so that a
// retry cannot reach a recipient twice.
package email

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email/mailserver"
)

// Kind is the sink kind email.
func Kind() sinks.Kind {
	return sinks.NewKind("email", "one email for each notification, from templates, by SMTP",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) },
		sinks.Answer{Says: "250 at the end of the mail", Means: "delivered to all recipients that were not refused; the receipt is `smtp 250 queued as 7F3`, and names the refused recipients"},
		sinks.Answer{Says: "at any step: a 4xx that reports a limit", Means: "throttled for 1 s to 10 min, depending on the limit"},
		sinks.Answer{Says: "connection, greeting, EHLO, TLS, authentication, token: any refusal, or no answer", Means: "unavailable"},
		sinks.Answer{Says: "`MAIL FROM`: 5xx about the size, or about a recipient's address that is not ASCII", Means: "invalid"},
		sinks.Answer{Says: "`MAIL FROM`: any other 4xx and 5xx, or no answer", Means: "unavailable, because the sender comes from the configuration"},
		sinks.Answer{Says: "`RCPT TO`, `DATA`, end of the mail: 421, 502, 503, 530, 534, 535, 538, and statuses about sender, account or machine", Means: "unavailable"},
		sinks.Answer{Says: "`RCPT TO`, `DATA`, end of the mail: other 4xx, even for one recipient; connection lost, or no answer within `timeout`", Means: "transient"},
		sinks.Answer{Says: "`RCPT TO`, `DATA`, end of the mail: 5xx about this recipient or mail, such as 550 5.1.1 and *no such user*", Means: "invalid; if it is only for some recipients, the others get the mail"},
		sinks.Answer{Says: "`RCPT TO`, `DATA`, end of the mail: other 5xx, such as *relaying denied*", Means: "permanent; if it is only for some recipients, the others get the mail"},
		sinks.Answer{Says: "nothing is sent: the type has no templates, or none for the payload's version", Means: "unknown"},
		sinks.Answer{Says: "nothing is sent: the templates fail, the mail is too large, or the server lacks SMTPUTF8", Means: "invalid; unavailable if only the sender's address is not ASCII"},
	)
}

// Sink sends each delivery as one email. Its methods are safe for concurrent use. At most
// Config.Connections mails are sent at once; further calls wait.
type Sink struct {
	composer *Composer
	server   *mailserver.Client
	logger   *slog.Logger
}

var (
	_ sinks.Builder       = Config{}
	_ sinks.Sink          = (*Sink)(nil)
	_ sinks.Collector     = (*Sink)(nil)
	_ sinks.Closer        = (*Sink)(nil)
	_ sinks.HealthChecker = (*Sink)(nil)
)

// New makes a sink from c with defaults for zero fields. It parses all templates, and does
// not connect before a delivery needs a connection. Its error joins all mistakes in c and in
// the templates. It logs a warning if c allows a password to be sent unencrypted.
//
// in.Dial opens the connections to the mail server, and also those to the authorization
// server of c.OAuth2, unless in.HTTPClient is set.
func New(in sinks.Instance, c Config) (*Sink, error) {
	c.SetDefaults()
	invalid := c.Validate()
	composer, err := newComposer(in, c)
	if err := errors.Join(invalid, err); err != nil {
		return nil, err
	}
	server, err := mailserver.New(in, c.server())
	if err != nil {
		return nil, err
	}
	return &Sink{composer: composer, server: server, logger: cmp.Or(in.Logger, slog.New(slog.DiscardHandler))}, nil
}

// Build makes a sink of the configuration; see [New].
func (c Config) Build(in sinks.Instance) (sinks.Sink, error) { return New(in, c) }

// RevealsPrivate implements [sinks.Revealer].
func (*Sink) RevealsPrivate() bool { return true }

// Deliver sends the mail, and returns the server's final reply as the receipt, such as
// "smtp 250 OK: queued as 7F3", with the recipients that the server refused.
//
// The classes of its errors:
//
//   - unknown: the type has no templates, or none for the version of the payload
//   - invalid: another mistake in the envelope or the templates, or a 5xx reply that is
//     about this mail, its size or its recipients only
//   - permanent: another 5xx reply to the mail or all recipients
//   - transient: a 4xx reply to those, or a timeout or a lost connection after the server
//     has accepted the sender, because this mail may be the cause
//   - unavailable: failures that do not depend on this mail, such as the connection, TLS,
//     authentication, the sender, reply 421, or a server that does not answer
//   - throttled: the server reports a limit, such as a rate or a quota
//
// docs/sinks-email.md has the whole table.
//
// If ctx is cancelled, Deliver closes the connection and returns ctx's error. If the whole
// mail was already sent, the server may still deliver it, and the next attempt repeats it.
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	m, err := s.composer.compose(d.Envelope)
	return s.send(ctx, d.Type, d.ID, m, err)
}

// send sends the mail for what has the id, or returns the error of making it with its class.
func (s *Sink) send(ctx context.Context, typ, id string, m *mailserver.Message, err error) (notification.Receipt, error) {
	if err != nil {
		if errors.Is(err, ErrNoTemplate) || errors.Is(err, ErrVersion) || errors.Is(err, registry.ErrNewerVersion) {
			return "", sinks.Unknown(err) // a newer deployment may have the templates, or know the type
		}
		return "", sinks.Invalid(err)
	}
	done, err := s.server.Send(ctx, m)
	if err != nil {
		return "", err
	}
	if len(done.Refused) > 0 {
		s.logger.WarnContext(ctx, "the mail server refuses some recipients permanently; the mail was sent to the others",
			"type", typ, "id", id, "refused", mailserver.Codes(done.Refused))
	}
	return done.Receipt(), nil
}

// CheckHealth sends a NOOP to the mail server, over an idle or a new connection. Its errors
// have the classes of Deliver.
func (s *Sink) CheckHealth(ctx context.Context) error {
	return s.server.Check(ctx)
}

// Close sends QUIT on all idle connections and closes them; after ctx has ended it does not
// wait for answers. Deliveries after Close fail with [mailserver.ErrClosed].
func (s *Sink) Close(ctx context.Context) error {
	s.server.Close(ctx)
	return nil
}
