package mailserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/wneessen/go-mail/smtp"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/line"
)

// Errors of sending.
var (
	// ErrClosed means that the sink is closed.
	ErrClosed = errors.New("email sink is closed")
	// ErrNoSMTPUTF8 means that an address is not ASCII and the server does not accept such
	// addresses (RFC 6531). It is unavailable if only the sender's address is not ASCII, and
	// invalid otherwise.
	ErrNoSMTPUTF8 = errors.New("address is not ASCII and the server does not offer SMTPUTF8")
	// ErrTooLarge means that the mail is larger than the server's limit, or than that of the sink.
	// It is invalid.
	ErrTooLarge = errors.New("mail is too large")
	// ErrReply means that the server's reply is not one of SMTP, or has no end.
	ErrReply = errors.New("not a reply of SMTP")
)

// Step is the step of sending at which an error occurred.
type Step string

// The steps, in order.
const (
	StepWait    Step = "wait for a connection" // all connections are in use
	StepToken   Step = "get a token"           // for XOAUTH2
	StepConnect Step = "connect"               // dial, greeting, TLS, authentication
	StepNoop    Step = "NOOP"
	StepFrom    Step = "MAIL FROM"
	StepTo      Step = "RCPT TO"
	StepData    Step = "DATA"
	// StepEnd is the reply to the whole mail. Without a reply, it is unknown whether the
	// server accepted the mail.
	StepEnd Step = "end of DATA"
)

// isBeforeRecipients reports whether the step comes before RCPT TO, so that it depends only on the
// configuration.
func (s Step) isBeforeRecipients() bool {
	switch s {
	case StepWait, StepToken, StepConnect, StepNoop, StepFrom:
		return true
	}
	return false
}

// ServerError is an error of sending a mail to the mail server.
type ServerError struct {
	// Server is the host and port.
	Server string
	// Step is the step that failed.
	Step Step
	// Refused are the recipients that the server refused at StepTo. The mail was then sent
	// to no recipient.
	Refused []Refusal
	// Err is the cause: a *textproto.Error if the server replied, otherwise an error of the
	// network.
	Err error

	// ofMail means that this mail is the cause.
	ofMail bool
}

// Refusal is a recipient that the server refused.
type Refusal struct {
	Address string
	Err     error
}

func (r Refusal) String() string {
	return "<" + r.Address + "> refused: " + describe(r.Err)
}

// maxRefusals is how many refusals a text lists.
const maxRefusals = 5

// Codes returns how many recipients were refused, and the codes, without the addresses, which are private data.
func Codes(list []Refusal) string {
	var codes []string
	for _, r := range list[:min(len(list), maxRefusals)] {
		if code := describe(r.Err); !slices.Contains(codes, code) {
			codes = append(codes, code)
		}
	}
	text := "recipients"
	if len(list) == 1 {
		text = "recipient"
	}
	return fmt.Sprintf("%d %s refused: %s", len(list), text, strings.Join(codes, "; "))
}

// Refusals lists refusals in one line of text.
func Refusals(list []Refusal) string {
	var b strings.Builder
	for i, r := range list[:min(len(list), maxRefusals)] {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(r.String())
	}
	if more := len(list) - maxRefusals; more > 0 {
		fmt.Fprintf(&b, "; and %d more", more)
	}
	return b.String()
}

// answer returns which recipients were refused, and what the server wrote, which may repeat the mail; "" if it did
// not reply.
func (e *ServerError) answer() string {
	var texts []string
	if len(e.Refused) > 0 {
		texts = append(texts, Refusals(e.Refused))
	}
	for _, err := range e.replies() {
		var reply *textproto.Error
		if !errors.As(err, &reply) {
			continue
		}
		if text := line.Of(reply.Msg, sinks.MaxAnswer/maxRefusals); text != "" && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return line.Of(strings.Join(texts, "; "), sinks.MaxAnswer-len("…"))
}

// replies returns the errors that the text of e lists.
func (e *ServerError) replies() []error {
	if len(e.Refused) == 0 {
		return []error{e.Err}
	}
	var replies []error
	for _, r := range e.Refused[:min(len(e.Refused), maxRefusals)] {
		replies = append(replies, r.Err)
	}
	return replies
}

// Error returns a text without addresses, and without what the server wrote, except the code and the status.
func (e *ServerError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s: ", e.Server, e.Step)
	if len(e.Refused) == 0 {
		b.WriteString(describe(e.Err))
	} else {
		b.WriteString(Codes(e.Refused) + " (the mail was sent to no recipient)")
	}
	if hint := e.hint(); hint != "" {
		fmt.Fprintf(&b, " (%s)", hint)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *ServerError) Unwrap() error { return e.Err }

// hint returns what the operator should check; "" if the cause is not clear.
func (e *ServerError) hint() string {
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(e.Err, &certificate):
		return "the server's certificate is not trusted here"
	case errors.Is(e.Err, smtp.ErrUnencrypted):
		return "the password would be sent in clear text; use smtps:// or a server with STARTTLS"
	case e.ofMail:
		return ""
	}
	return answerIn(e.Err).hint(e.Step)
}

// isLocal reports whether nothing was sent, because the server's extensions and limits do not allow
// the mail.
func (e *ServerError) isLocal() bool {
	return errors.Is(e.Err, ErrNoSMTPUTF8) || errors.Is(e.Err, ErrTooLarge)
}

// keepsConnection reports whether the connection can be used for another mail. After an answer that
// may be about more than this mail it is not: some servers refuse everything on a connection after
// some mails, or since what is behind them was lost, and accept the same on a new one.
func (e *ServerError) keepsConnection() bool {
	return e.isLocal() || e.ofMail || answerIn(e.Err).isAboutMail(e.Step)
}

// class returns the class of the error, and the pause for ClassThrottled; see Sink.Deliver.
func (e *ServerError) class() (sinks.Class, time.Duration) {
	switch a := answerIn(e.Err); {
	case errors.Is(e.Err, context.Canceled):
		return sinks.ClassCancelled, 0
	case e.ofMail:
		return sinks.ClassInvalid, 0
	case a.code != 0:
		return a.class(e.Step)
	case e.Step.isBeforeRecipients():
		return sinks.ClassUnavailable, 0
	}
	// If the connection is lost later, this mail may be the cause. If the error were
	// unavailable, this mail would delay all others forever.
	return sinks.ClassTransient, 0
}

// classify adds the class to an error.
func classify(err error) error {
	var server *ServerError
	if !errors.As(err, &server) {
		return err
	}
	err = sinks.WithAnswer(err, server.answer())
	switch class, pause := server.class(); class {
	case sinks.ClassPermanent:
		return sinks.Permanent(err)
	case sinks.ClassInvalid:
		return sinks.Invalid(err)
	case sinks.ClassThrottled:
		return sinks.Throttled(time.Now().Add(pause), err)
	case sinks.ClassUnavailable:
		return sinks.Unavailable(err)
	case sinks.ClassTransient:
		return sinks.Transient(err)
	}
	return err // cancelled, which the engine recognizes by context.Canceled
}

// describe returns an error in one line: if the server replied, the code and the enhanced status of
// the reply without its text.
func describe(err error) string {
	var reply *textproto.Error
	if errors.As(err, &reply) {
		return strings.TrimSpace(fmt.Sprintf("%03d %s", reply.Code, strings.TrimSpace(enhancedStatus.FindString(reply.Msg))))
	}
	return line.Of(err.Error(), maxError)
}

// maxError is the number of bytes after which the text of an error without a reply is cut off.
const maxError = 300

// maxText is the number of bytes after which a text in a receipt or a mistake is cut off.
const maxText = 200
