package email

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/textproto"
	"strings"
	"time"
	"unicode"

	"github.com/wneessen/go-mail/smtp"

	"github.com/waybill-go/waybill/sinks"
)

// ErrTemplates is wrapped by all mistakes in the templates that are found at
// the start.
var ErrTemplates = errors.New("templates")

// Errors of one envelope, found before the server is asked; all are permanent.
var (
	// ErrPayload says that a payload is not JSON.
	ErrPayload = errors.New("payload is not JSON")
	// ErrNoTemplate says that a type has no template for a part of the mail.
	ErrNoTemplate = errors.New("no template")
	// ErrRender says that a template failed, mostly on a field that is missing.
	ErrRender = errors.New("cannot render")
	// ErrAddress says that a template gave no usable addresses.
	ErrAddress = errors.New("no valid address")
	// ErrSubject says that a subject is empty or too long.
	ErrSubject = errors.New("no valid subject")
	// ErrLocale says that a template gave what is no locale.
	ErrLocale = errors.New("no valid locale")
	// ErrUnsubscribe says that a template gave what is no URL to unsubscribe at.
	ErrUnsubscribe = errors.New("no valid URL to unsubscribe")
	// ErrAttachment says that a file to attach is not there or malformed.
	ErrAttachment = errors.New("no valid attachment")
)

// Errors of the conversation with the server.
var (
	// ErrClosed says that the sink was closed.
	ErrClosed = errors.New("email sink is closed")
	// ErrNoSMTPUTF8 says that an address has letters beyond ASCII and the
	// server cannot take such (RFC 6531). It is permanent, unless the address is the
	// sender's: then it is unavailable.
	ErrNoSMTPUTF8 = errors.New("address is not ASCII and the server does not offer SMTPUTF8")
	// ErrTooLarge says that a mail is larger than Config.MaxSize or than the
	// server takes. It is permanent.
	ErrTooLarge = errors.New("mail is too large")
)

// Step is where in the conversation with the server something happened.
type Step string

// The steps, in their order.
const (
	StepWait    Step = "wait for a connection" // all are in use
	StepToken   Step = "get a token"           // for XOAUTH2
	StepConnect Step = "connect"               // dial, greeting, TLS, authentication
	StepNoop    Step = "NOOP"
	StepFrom    Step = "MAIL FROM"
	StepTo      Step = "RCPT TO"
	StepData    Step = "DATA"
	// StepEnd is the reply to the whole mail. Without one it is unknown whether
	// the server took the mail.
	StepEnd Step = "end of DATA"
)

// knowsNoRecipient says that all up to this step depends on the configuration
// only.
func (s Step) knowsNoRecipient() bool {
	switch s {
	case StepWait, StepToken, StepConnect, StepNoop, StepFrom:
		return true
	}
	return false
}

// ServerError is what went wrong in the conversation with the mail server.
type ServerError struct {
	// Server is the host and port.
	Server string
	// Step is what was tried.
	Step Step
	// Refused are the recipients that the server refused, at StepTo. None of
	// the mail's recipients was sent anything.
	Refused []Refusal
	// Err is the cause: a *textproto.Error where the server replied, otherwise
	// an error of the network.
	Err error

	// ofMail says that the mail is refused for what it is.
	ofMail bool
}

// Refusal is one recipient that the server refused.
type Refusal struct {
	Address string
	Err     error
}

func (r Refusal) String() string { return "<" + r.Address + "> refused: " + describe(r.Err) }

// maxRefusals is how many refusals a text names.
const maxRefusals = 5

// refusals lists refusals in one line.
func refusals(list []Refusal) string {
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

func (e *ServerError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s: ", e.Server, e.Step)
	if len(e.Refused) == 0 {
		b.WriteString(describe(e.Err))
	} else {
		b.WriteString(refusals(e.Refused) + " (nothing was sent to anyone)")
	}
	if hint := e.hint(); hint != "" {
		fmt.Fprintf(&b, " (%s)", hint)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *ServerError) Unwrap() error { return e.Err }

// hint says what an operator should look at, where the cause is clear.
func (e *ServerError) hint() string {
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(e.Err, &certificate):
		return "the server's certificate is not trusted here"
	case errors.Is(e.Err, smtp.ErrUnencrypted):
		return "the password would travel in clear; use smtps:// or a server with STARTTLS"
	case e.ofMail:
		return ""
	}
	return answerIn(e.Err).hint(e.Step)
}

// wasNotAsked says that the server's abilities were reason enough not to ask it.
func (e *ServerError) wasNotAsked() bool {
	return errors.Is(e.Err, ErrNoSMTPUTF8) || errors.Is(e.Err, ErrTooLarge)
}

// leavesConversation says that the connection is still good for another mail.
func (e *ServerError) leavesConversation() bool {
	return e.wasNotAsked() || !hungUp(e.Err)
}

// class says what the error means for the engine, and for how long to wait with
// ClassThrottled; see Sink.Deliver.
func (e *ServerError) class() (sinks.Class, time.Duration) {
	switch a := answerIn(e.Err); {
	case errors.Is(e.Err, context.Canceled):
		return sinks.ClassCancelled, 0
	case e.ofMail:
		return sinks.ClassPermanent, 0
	case a.code != 0:
		return a.class(e.Step)
	case e.Step.knowsNoRecipient():
		return sinks.ClassUnavailable, 0
	}
	// A connection lost further on may be this mail's doing, and a sink that
	// waits for such a server to come back would wait forever.
	return sinks.ClassTransient, 0
}

// classify gives err the class that the engine acts on.
func classify(err error) error {
	var server *ServerError
	if !errors.As(err, &server) {
		return err
	}
	switch class, pause := server.class(); class {
	case sinks.ClassPermanent:
		return sinks.Permanent(err)
	case sinks.ClassThrottled:
		return sinks.Throttled(time.Now().Add(pause), err)
	case sinks.ClassUnavailable:
		return sinks.Unavailable(err)
	case sinks.ClassTransient:
		return sinks.Transient(err)
	}
	return err // cancelled: context.Canceled speaks for itself
}

// describe is an error in one line: the server's own words where it replied.
func describe(err error) string {
	var reply *textproto.Error
	if errors.As(err, &reply) {
		return fmt.Sprintf("%03d %s", reply.Code, clean(reply.Msg))
	}
	return clean(err.Error())
}

// maxReply bounds what is kept of a server's words, in bytes.
const maxReply = 200

// clean makes a foreign text fit for one line of a log or a receipt: no control
// characters, spaces collapsed, at most maxReply bytes.
func clean(s string) string {
	s = collapse(s)
	if len(s) <= maxReply {
		return s
	}
	return strings.ToValidUTF8(s[:maxReply], "") + "…"
}

// collapse replaces each run of spaces and control characters, line ends among
// them, with one space, and drops what is not UTF-8.
func collapse(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, ""), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
}
