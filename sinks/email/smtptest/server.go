// Package smtptest runs a real SMTP server inside the process, for tests,
// examples and demonstrations of the email sink. It speaks the protocol over
// TCP on the loopback interface, keeps what it was sent, and refuses or delays
// where a hook says so.
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
)

// TLS says how a server encrypts.
type TLS int

const (
	// Plain offers no encryption.
	Plain TLS = iota
	// StartTLS offers the STARTTLS command.
	StartTLS
	// Implicit speaks TLS from the first byte (smtps).
	Implicit
)

// Config is how a server behaves. The zero value takes every message in clear
// text from anyone, on a free port of 127.0.0.1.
type Config struct {
	// Address to listen on; "" means "127.0.0.1:0", a free port.
	Address string
	// Username and Password, where set, are asked for before the first message
	// (AUTH PLAIN, or Mechanisms). With XOAUTH2 the password is the token.
	Username, Password string
	// Mechanisms of authentication to offer: PLAIN (the default), LOGIN, XOAUTH2.
	Mechanisms []string
	// TLS is Plain unless set. The certificate is made at start for 127.0.0.1
	// and localhost; Server.TLSConfig trusts it.
	TLS TLS
	// CountOnly throws the messages away once they are counted, so that memory
	// stays the same however many there are. Messages is then empty.
	CountOnly bool
	// Sequential leaves out the extension PIPELINING, as older servers do.
	Sequential bool
	// ASCIIOnly leaves out the extension SMTPUTF8, as older servers do.
	ASCIIOnly bool

	// The hooks below are asked at their step of each conversation; nil takes
	// everything. What they return is the server's reply (see Reply); they may
	// block to delay it, and ctx ends when the server is closed. They run in
	// parallel for parallel connections.

	// OnHello is asked when a client introduces itself.
	OnHello func(ctx context.Context) error
	// OnAuth is asked, in place of a comparison with Username and Password, for
	// the user and its password or token.
	OnAuth func(ctx context.Context, username, secret string) error
	// OnFrom is asked for the envelope's sender.
	OnFrom func(ctx context.Context, from string) error
	// OnRecipient is asked for each of the envelope's recipients.
	OnRecipient func(ctx context.Context, to string) error
	// OnMessage is asked after the whole message was received, before it is
	// taken. With CountOnly the message has no Raw.
	OnMessage func(ctx context.Context, m Message) error
}

// Reply is a refusal for a hook to return: a three-digit SMTP code and a text.
// A text that begins with an enhanced status code (RFC 3463), such as "5.7.8 no",
// keeps it; others get X.0.0. From OnMessage a code 2xx takes the message with
// that text.
func Reply(code int, text string) error {
	enhanced := smtp.EnhancedCode{code / 100, 0, 0}
	if enhancedStatus.MatchString(text) {
		enhanced = smtp.NoEnhancedCode
	}
	return &smtp.SMTPError{Code: code, EnhancedCode: enhanced, Message: text}
}

var enhancedStatus = regexp.MustCompile(`^[245]\.\d{1,3}\.\d{1,3} `)

// Server is a running SMTP server. Its methods may be called in parallel.
type Server struct {
	config      Config
	address     string
	listener    net.Listener
	certificate *certificate
	smtp        *smtp.Server
	ctx         context.Context // ends when the server closes
	cancel      context.CancelFunc
	served      chan struct{} // closed when the accept loop ended

	mu          sync.Mutex
	changed     chan struct{} // closed and replaced with every message
	messages    []Message
	taken       int
	connections int
	open        map[net.Conn]struct{}
	mostOpen    int
}

// Start starts a server, which runs until Close.
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
	if c.TLS != Plain {
		made, err := newCertificate()
		if err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
		s.certificate = made
	}
	listener, err := net.Listen("tcp", c.Address)
	if err != nil {
		return nil, err
	}
	s.address = listener.Addr().String()
	listener = &countingListener{Listener: listener, server: s}
	switch c.TLS {
	case StartTLS:
		s.smtp.TLSConfig = s.certificate.server
	case Implicit:
		listener = tls.NewListener(listener, s.certificate.server)
	}
	s.listener = listener
	go func() {
		defer close(s.served)
		_ = s.smtp.Serve(listener) // ends with Close; an error then says no more
	}()
	return s, nil
}

// Close stops the server: the listener and all connections are closed, and
// when it returns no goroutine of the server is left. Messages stays readable.
// A second call does nothing.
func (s *Server) Close() error {
	s.cancel()
	// The library closes a listener only once its Serve has noticed it, which
	// may be after a Close that comes soon.
	_ = s.listener.Close()
	<-s.served
	s.Disconnect()
	err := s.smtp.Shutdown(context.Background()) // waits for the conversations
	if errors.Is(err, smtp.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Disconnect closes all open connections without a word, as a server that
// crashed or a firewall would. New connections are accepted.
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

// Address is the host and port that the server listens on.
func (s *Server) Address() string { return s.address }

// URL is the server's address as the email sink's field smtp takes it, user
// and password included.
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

// TLSConfig is a client's configuration that trusts the server's certificate;
// nil for a Plain server.
func (s *Server) TLSConfig() *tls.Config {
	if s.certificate == nil {
		return nil
	}
	return s.certificate.client.Clone()
}

// Messages returns the messages taken so far, oldest first.
func (s *Server) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Message(nil), s.messages...)
}

// Count is the number of messages taken so far, also with CountOnly.
func (s *Server) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// Wait returns once at least n messages were taken, or with ctx's error.
func (s *Server) Wait(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		taken, changed := s.taken, s.changed
		s.mu.Unlock()
		if taken >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d messages arrived: %w", taken, n, ctx.Err())
		}
	}
}

// Connections is the number of connections that were accepted since the start.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connections
}

// OpenConnections is the number of connections that are open now.
func (s *Server) OpenConnections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// MostConnections is the largest number of connections that were open at once.
func (s *Server) MostConnections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mostOpen
}

// take records a message and returns its number, counted from 1.
func (s *Server) take(m Message) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken++
	if !s.config.CountOnly {
		s.messages = append(s.messages, m)
	}
	close(s.changed)
	s.changed = make(chan struct{})
	return s.taken
}

// countingListener tells the server of each connection's beginning and end.
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

// Write takes PIPELINING, which the library always offers, out of the reply to
// EHLO.
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
