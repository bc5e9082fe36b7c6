package mailserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"os"
	"time"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/line"
	"github.com/waybill-go/waybill/sinks/internal/redact"
)

// server has the settings for connections to the mail server. It is immutable.
type server struct {
	host        string
	address     string
	timeout     time.Duration
	maxAge      time.Duration // of a connection
	dial        func(ctx context.Context, network, address string) (net.Conn, error)
	hello       string // the name in EHLO
	tls         *tls.Config
	startTLS    string      // TLSNone with implicit TLS
	implicitTLS bool        // TLS from the first byte
	mechanisms  []mechanism // for the password; none without a user or with tokens
	user        string
	password    string
	tokens      tokens // nil unless each connection needs one

	credentials redact.Credentials // removed from all replies
}

func newServer(c Settings, in sinks.Instance) (*server, error) {
	u, host, port, err := c.address()
	if err != nil {
		return nil, err
	}
	s := &server{
		host: host, address: net.JoinHostPort(host, port), timeout: c.Timeout, maxAge: maxConnectionAge,
		dial: in.Dial, hello: c.Hello, startTLS: c.startTLS(), implicitTLS: u.Scheme == "smtps",
		mechanisms: c.mechanisms(u.User), user: u.User.Username(), tokens: c.tokens(u.User, in), credentials: c.credentials(u.User),
	}
	s.password, _ = u.User.Password()
	if s.dial == nil {
		s.dial = new(net.Dialer).DialContext
	}
	if s.hello == "" {
		if s.hello, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("hello: is missing, and the host's name is unknown: %w", err)
		}
	}
	if s.implicitTLS {
		s.startTLS = TLSNone
	}
	s.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	if c.TLSConfig != nil {
		s.tls = c.TLSConfig.Clone()
	}
	if s.tls.ServerName == "" {
		s.tls.ServerName = host
	}
	return s, nil
}

// connect dials, encrypts and authenticates. ctx and the timeout limit all of it together.
func (s *server) connect(ctx context.Context) (*connection, error) {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	token, err := s.token(bounded)
	if err != nil {
		return nil, s.failure(StepToken, causeOf(bounded, err))
	}
	raw, err := s.dial(bounded, "tcp", s.address)
	if err != nil {
		return nil, s.failure(StepConnect, causeOf(bounded, err))
	}
	c := &connection{server: s, raw: raw, since: time.Now()}
	stop := context.AfterFunc(bounded, c.cut)
	c.dialog, err = s.begin(bounded, raw, token)
	if !stop() && err == nil {
		err = bounded.Err()
	}
	if err != nil {
		c.cut()
		if token != "" && answerIn(err).isAboutUser() {
			s.tokens.refused(token)
		}
		return nil, s.failure(StepConnect, redacted(redact.New(asSent(s.user, token)...), causeOf(bounded, err)))
	}
	return c, nil
}

// begin makes a new connection ready for mails.
func (s *server) begin(ctx context.Context, raw net.Conn, token string) (*dialog, error) {
	d := newDialog(raw)
	if s.implicitTLS {
		encrypted := tls.Client(raw, s.tls)
		if err := encrypted.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		d.use(encrypted)
	}
	if _, _, err := d.reply(220); err != nil {
		return nil, err
	}
	if err := d.hello(s.hello); err != nil {
		return nil, err
	}
	_, offered := d.offers("STARTTLS")
	switch {
	case s.startTLS == TLSMandatory && !offered:
		return nil, errNoSTARTTLS
	case s.startTLS != TLSNone && offered:
		if err := d.startTLS(ctx, s.tls, s.hello); err != nil {
			return nil, err
		}
	}
	if token != "" {
		return d, d.authenticate(s.host, newXOAUTH2(s.user, token))
	}
	return d, d.logIn(s)
}

// token returns the token for a new connection; "" if it needs none.
func (s *server) token(ctx context.Context) (string, error) {
	if s.tokens == nil {
		return "", nil
	}
	return s.tokens.get(ctx)
}

func (s *server) failure(step Step, err error) *ServerError {
	return &ServerError{Server: s.address, Step: step, Err: redacted(s.credentials, err)}
}

// redacted removes credentials from the text of an error, or from the server's reply in it.
func redacted(credentials redact.Credentials, err error) error {
	var reply *textproto.Error
	if !errors.As(err, &reply) {
		return credentials.Error(err)
	}
	if text := credentials.Text(reply.Msg); text != reply.Msg {
		return &textproto.Error{Code: reply.Code, Msg: text}
	}
	return err
}

// connection is a connection to the server. Only one goroutine may use it at a time.
type connection struct {
	server    *server
	raw       net.Conn
	dialog    *dialog
	since     time.Time
	idleSince time.Time
	// broken means that the next mail cannot use the connection.
	broken bool
}

// send sends a mail. Its errors are *ServerError. After an error, the mail was sent to no
// recipient, except that after StepEnd it is unknown whether the server accepted the mail.
//
// After a success the server has cleared its buffers (RFC 5321, section 4.1.1.4), so RSET is only
// needed after a refusal.
func (c *connection) send(ctx context.Context, m *Message) (done Sent, err error) {
	err = c.within(ctx, func() error {
		var failed *ServerError
		if done, failed = c.transact(m); failed == nil {
			return nil
		}
		c.reuse(failed)
		return failed
	})
	return done, err
}

// reuse makes the connection ready for another mail after a failure, or ends it.
func (c *connection) reuse(failed *ServerError) {
	switch {
	case c.broken:
	case failed.keepsConnection():
		_, _, err := c.dialog.ask(250, "RSET")
		c.broken = err != nil
	default:
		c.broken = true
		if !hungUp(failed.Err) {
			_ = c.dialog.send("QUIT") // the answer does not matter
		}
	}
}

// noop checks that the server answers.
func (c *connection) noop(ctx context.Context) error {
	return c.within(ctx, func() error {
		if _, _, err := c.dialog.ask(250, "NOOP"); err != nil {
			c.broken = true
			return c.server.failure(StepNoop, err)
		}
		return nil
	})
}

// quit sends QUIT and closes the connection. It waits for the answer until ctx ends or the timeout
// passes.
func (c *connection) quit(ctx context.Context) {
	// The connection is closed with or without an answer.
	_ = c.within(ctx, func() error {
		_, _, err := c.dialog.ask(221, "QUIT")
		return err
	})
	c.cut()
}

// leaving bounds the time for writing QUIT, which takes none unless the server reads nothing.
const leaving = 100 * time.Millisecond

// leave closes the connection without waiting for the answer to QUIT.
func (c *connection) leave() {
	_ = c.raw.SetWriteDeadline(time.Now().Add(leaving))
	_ = c.dialog.send("QUIT")
	c.cut()
}

// cut closes the connection without QUIT.
func (c *connection) cut() { _ = c.raw.Close() }

// within runs an exchange with the server. It cuts the connection when ctx ends or the timeout
// passes, since nothing else ends a read. If the exchange has succeeded by then, it still counts.
func (c *connection) within(ctx context.Context, exchange func() error) error {
	bounded, cancel := context.WithTimeout(ctx, c.server.timeout)
	defer cancel()
	stop := context.AfterFunc(bounded, c.cut)
	err := exchange()
	if !stop() {
		c.broken = true
	}
	var failed *ServerError
	if errors.As(err, &failed) {
		failed.Err = causeOf(bounded, failed.Err)
	}
	return err
}

// causeOf returns the context's error if an exchange failed because the context ended. The error
// of the exchange then only says that the connection was closed.
func causeOf(ctx context.Context, err error) error {
	if answerIn(err).code != 0 || ctx.Err() == nil {
		return err
	}
	return ctx.Err()
}

// isStale reports whether the first command on an idle connection found that the server has closed
// the connection, or closes it now (421).
func isStale(err error) bool {
	var failed *ServerError
	if !errors.As(err, &failed) || (failed.Step != StepFrom && failed.Step != StepNoop) {
		return false
	}
	if failed.isLocal() || errors.Is(failed.Err, context.Canceled) || errors.Is(failed.Err, context.DeadlineExceeded) {
		return false
	}
	return hungUp(failed.Err)
}

// isAboutDestination reports whether an exchange failed for a reason that is not about its mail.
func isAboutDestination(err error) bool {
	var failed *ServerError
	if !errors.As(err, &failed) {
		return false
	}
	class, _ := failed.class()
	return class == sinks.ClassUnavailable || class == sinks.ClassThrottled
}

// receiptText returns at most so many bytes of a reply, without its enhanced status, which has the
// same meaning as the 250.
func receiptText(reply string, most int) string {
	return line.Of(enhancedStatus.ReplaceAllString(reply, ""), most)
}
