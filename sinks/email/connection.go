package email

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"time"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/redact"
)

// server has the settings for connections to the mail server. It is immutable.
type server struct {
	host    string
	address string
	timeout time.Duration
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	tls     *tls.Config // for TLS from the first byte; nil otherwise
	options []gomail.Option
	user    string
	tokens  tokens // nil unless each connection needs one

	credentials redact.Credentials // removed from all replies
}

func newServer(c Config, in sinks.Instance) (*server, error) {
	u, host, port, err := c.address()
	if err != nil {
		return nil, err
	}
	s := &server{host: host, address: net.JoinHostPort(host, port), timeout: c.Timeout, user: u.User.Username(), tokens: c.tokens(u.User, in), credentials: c.credentials(u.User)}
	if s.dial = in.Dial; s.dial == nil {
		s.dial = new(net.Dialer).DialContext
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.TLSConfig != nil {
		config = c.TLSConfig.Clone()
	}
	if config.ServerName == "" {
		config.ServerName = host
	}
	policy := map[string]gomail.TLSPolicy{
		TLSOpportunistic: gomail.TLSOpportunistic, TLSMandatory: gomail.TLSMandatory, TLSNone: gomail.NoTLS,
	}[c.startTLS()]
	if u.Scheme == "smtps" {
		s.tls, policy = config, gomail.NoTLS
	}
	s.options = []gomail.Option{
		gomail.WithTimeout(c.Timeout), gomail.WithTLSConfig(config), gomail.WithTLSPolicy(policy),
	}
	if c.Hello != "" {
		s.options = append(s.options, gomail.WithHELO(c.Hello))
	}
	s.options = append(s.options, c.authOptions(u.User)...)
	if _, err := gomail.NewClient(host, s.options...); err != nil {
		return nil, fmt.Errorf("smtp: %w", err)
	}
	return s, nil
}

// connect dials, encrypts and authenticates. ctx and the timeout limit all of it together.
func (s *server) connect(ctx context.Context) (*connection, error) {
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	c := &connection{server: s}
	stop := func() bool { return true }
	dial := func(dialing context.Context, network, _ string) (net.Conn, error) {
		// The address that the library passes lacks the brackets of an IPv6 host.
		raw, err := s.dial(dialing, network, s.address)
		if err != nil {
			return nil, err
		}
		c.raw = raw
		stop = context.AfterFunc(bounded, func() { _ = raw.Close() })
		if s.tls == nil {
			return raw, nil
		}
		return tls.Client(raw, s.tls), nil // the handshake happens at the first read
	}
	options := append([]gomail.Option{gomail.WithDialContextFunc(dial)}, s.options...)
	token, err := s.token(bounded)
	if err != nil {
		return nil, s.failure(StepToken, causeOf(bounded, err))
	}
	if token != "" {
		options = append(options, gomail.WithSMTPAuthCustom(newXOAUTH2(s.user, token)))
	}
	client, err := gomail.NewClient(s.host, options...)
	if err != nil {
		return nil, s.failure(StepConnect, err)
	}
	c.client, err = client.DialToSMTPClientWithContext(bounded)
	if err == nil && !stop() {
		err = bounded.Err()
	}
	if err != nil {
		stop()
		if c.raw != nil {
			c.cut() // the library leaves the connection open after some failures
		}
		if token != "" && answerIn(err).isAboutUser() {
			s.tokens.refused(token)
		}
		return nil, s.failure(StepConnect, redacted(redact.New(asSent(s.user, token)...), causeOf(bounded, err)))
	}
	// From here on, contexts limit the exchanges instead of the library's deadline.
	_ = c.raw.SetDeadline(time.Time{})
	return c, nil
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
	client    *smtp.Client
	idleSince time.Time
	// broken means that the next mail cannot use the connection.
	broken bool
}

// send sends a mail. Its errors are *ServerError. After an error, the mail was sent to no
// recipient, except that after StepEnd it is unknown whether the server accepted the mail.
//
// After a success the server has cleared its buffers (RFC 5321, section 4.1.1.4), so RSET is only
// needed after a refusal.
func (c *connection) send(ctx context.Context, m *message) (done sent, err error) {
	err = c.within(ctx, func() error {
		var failed *ServerError
		if done, failed = c.transact(m); failed == nil {
			return nil
		}
		if c.broken || !failed.keepsConnection() || c.client.Reset() != nil {
			c.broken = true
		}
		return failed
	})
	return done, err
}

// noop checks that the server answers.
func (c *connection) noop(ctx context.Context) error {
	return c.within(ctx, func() error {
		if err := c.client.Noop(); err != nil {
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
	_ = c.within(ctx, func() error { return c.client.Quit() })
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

// receiptText returns a reply without its enhanced status, which has the same meaning as the 250.
func receiptText(reply string) string {
	return enhancedStatus.ReplaceAllString(clean(reply), "")
}
