// Package smtptest runs a real SMTP server inside the process, for tests, examples and
// demonstrations of the email sink. It listens on the loopback interface and keeps the messages
// that it accepts. Hooks can refuse or delay each step.
//
//	server, err := smtptest.Start(smtptest.Config{})
//	...
//	defer server.Close()
//	send(server.URL())
//	err = server.Wait(ctx, 1)
//	fmt.Println(server.Messages()[0].Subject())
package smtptest

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/url"
	"regexp"
	"sync"

	"github.com/emersion/go-smtp"

	"github.com/waybill-go/waybill/sinks/internal/certtest"
)

// TLS is how a server encrypts connections.
type TLS int

const (
	// Plain offers no encryption.
	Plain TLS = iota
	// StartTLS offers the STARTTLS command.
	StartTLS
	// Implicit uses TLS from the first byte (smtps).
	Implicit
)

// Config has the settings of a server. The zero value accepts every message in clear text from
// anyone, on a free port of 127.0.0.1.
type Config struct {
	// Address to listen on; "" means "127.0.0.1:0", a free port.
	Address string
	// Username and Password, if set, are required before the first message. With XOAUTH2 the
	// password is the token.
	Username, Password string
	// Mechanisms are the offered mechanisms of authentication: PLAIN (the default), LOGIN,
	// XOAUTH2.
	Mechanisms []string
	// TLS is Plain by default. Start makes the certificate, for 127.0.0.1 and localhost;
	// Server.TLSConfig trusts it.
	TLS TLS
	// CountOnly counts messages without keeping them, so that memory does not grow. Messages
	// then returns none.
	CountOnly bool
	// Sequential leaves out the extension PIPELINING, as older servers do.
	Sequential bool
	// ASCIIOnly leaves out the extension SMTPUTF8, as older servers do.
	ASCIIOnly bool

	// The hooks below are called at a step of each conversation. A nil hook accepts
	// everything. Their errors are the server's replies; see Reply. They may block to delay a
	// reply; ctx ends when the server is closed. They are called concurrently for several
	// connections.

	// OnHello is called when a client sends EHLO.
	OnHello func(ctx context.Context) error
	// OnAuth checks a user and its password or token, instead of Username and Password.
	OnAuth func(ctx context.Context, username, secret string) error
	// OnFrom checks the envelope's sender.
	OnFrom func(ctx context.Context, from string) error
	// OnRecipient checks each of the envelope's recipients.
	OnRecipient func(ctx context.Context, to string) error
	// OnMessage is called once the whole message is received, before it is accepted. With
	// CountOnly the message has no Raw.
	OnMessage func(ctx context.Context, m Message) error
}

// Reply returns an error for a hook: a reply with a three-digit SMTP code and a text. If the text
// begins with an enhanced status code (RFC 3463), such as "5.7.8 no", that is used; otherwise it is
// X.0.0. If OnMessage returns a code 2xx, the message is accepted with that text.
func Reply(code int, text string) error {
	enhanced := smtp.EnhancedCode{code / 100, 0, 0}
	if enhancedStatus.MatchString(text) {
		enhanced = smtp.NoEnhancedCode
	}
	return &smtp.SMTPError{Code: code, EnhancedCode: enhanced, Message: text}
}

var enhancedStatus = regexp.MustCompile(`^[245]\.\d{1,3}\.\d{1,3} `)

// Server is a running SMTP server. Its methods are safe for concurrent use.
type Server struct {
	config   Config
	address  string
	listener net.Listener
	trusting *tls.Config // of clients; nil without TLS
	smtp     *smtp.Server
	ctx      context.Context // ends when the server closes
	cancel   context.CancelFunc
	served   chan struct{} // closed when the accept loop ends

	mu          sync.Mutex
	changed     chan struct{} // closed and replaced at each message
	messages    []Message
	accepted    int
	connections int
	open        map[net.Conn]struct{}
	mostOpen    int
}

// Start starts a server. It runs until Close.
func Start(c Config) (*Server, error) {
	if c.Address == "" {
		c.Address = "127.0.0.1:0"
	}
	s := &Server{
		config:  c,
		served:  make(chan struct{}),
		changed: make(chan struct{}),
		open:    make(map[net.Conn]struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.smtp = smtp.NewServer(smtp.BackendFunc(s.newSession))
	s.smtp.Domain = "localhost"
	s.smtp.AllowInsecureAuth = true
	s.smtp.EnableSMTPUTF8 = !c.ASCIIOnly
	s.smtp.ErrorLog = log.New(io.Discard, "", 0)
	listener, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, err
	}
	s.address = listener.Addr().String()
	listener = &countingListener{Listener: listener, server: s}
	if c.TLS != Plain {
		authority := certtest.New()
		s.trusting = &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12}
		serving := &tls.Config{Certificates: []tls.Certificate{authority.Issue("localhost", "127.0.0.1", "::1")}, MinVersion: tls.VersionTLS12}
		if c.TLS == Implicit {
			listener = tls.NewListener(listener, serving)
		} else {
			s.smtp.TLSConfig = serving
		}
	}
	s.listener = listener
	go func() {
		defer close(s.served)
		_ = s.smtp.Serve(listener) // the error only says that the server is closed
	}()
	return s, nil
}

// Close stops the server, closes all connections, and waits until all goroutines of the server have
// ended. Messages can still be called. A second call does nothing.
func (s *Server) Close() error {
	s.cancel()
	// The library closes a listener only once Serve has registered it, which may be too late if
	// Close follows Start at once.
	_ = s.listener.Close()
	<-s.served
	s.Disconnect()
	err := s.smtp.Shutdown(context.Background()) // waits for the conversations
	if errors.Is(err, smtp.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Disconnect closes all open connections without a reply, like a crashed server or a firewall. New
// connections are accepted.
func (s *Server) Disconnect() {
	s.mu.Lock()
	open := make([]net.Conn, 0, len(s.open))
	for conn := range s.open {
		open = append(open, conn)
	}
	s.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close()
	}
}

// Address returns the host and port on which the server listens.
func (s *Server) Address() string { return s.address }

// URL returns the server's address for the email sink's setting smtp, including user and password.
func (s *Server) URL() string {
	u := url.URL{Scheme: "smtp", Host: s.address}
	if s.config.TLS == Implicit {
		u.Scheme = "smtps"
	}
	if s.config.Username != "" {
		u.User = url.UserPassword(s.config.Username, s.config.Password)
	}
	return u.String()
}

// TLSConfig returns a client's configuration that trusts the server's certificate; nil for a Plain
// server.
func (s *Server) TLSConfig() *tls.Config { return s.trusting.Clone() }

// Messages returns the messages accepted so far, oldest first.
func (s *Server) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Message(nil), s.messages...)
}

// Count returns the number of messages accepted so far, with or without CountOnly.
func (s *Server) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// Wait waits until at least n messages are accepted. It returns an error if ctx ends first.
func (s *Server) Wait(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		accepted, changed := s.accepted, s.changed
		s.mu.Unlock()
		if accepted >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d messages arrived: %w", accepted, n, ctx.Err())
		}
	}
}

// Connections returns the number of connections accepted since Start.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connections
}

// OpenConnections returns the number of open connections.
func (s *Server) OpenConnections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// MostConnections returns the largest number of connections open at once.
func (s *Server) MostConnections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mostOpen
}

// record records an accepted message and returns its number, counted from 1.
func (s *Server) record(m Message) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted++
	if !s.config.CountOnly {
		s.messages = append(s.messages, m)
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return s.accepted
}

// countingListener registers open connections with the server.
type countingListener struct {
	net.Listener
	server *Server
}

func (l *countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	counted := &countedConn{Conn: conn, server: l.server}
	s := l.server
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connections++
	s.open[counted] = struct{}{}
	s.mostOpen = max(s.mostOpen, len(s.open))
	return counted, nil
}

type countedConn struct {
	net.Conn
	server *Server
}

// Write removes PIPELINING, which the library always offers, from the reply to EHLO if the server is
// Sequential.
func (c *countedConn) Write(b []byte) (int, error) {
	if !c.server.config.Sequential {
		return c.Conn.Write(b)
	}
	if _, err := c.Conn.Write(bytes.Replace(b, []byte("250-PIPELINING\r\n"), nil, 1)); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (c *countedConn) Close() error {
	c.server.mu.Lock()
	delete(c.server.open, c)
	c.server.mu.Unlock()
	return c.Conn.Close()
}
