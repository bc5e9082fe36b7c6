package mailserver

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/sinks"
)

// maxIdle is how long an idle connection can be used again. Servers should wait five minutes for a
// command (RFC 5321, section 4.5.3.2.7), but firewalls may drop a connection earlier, and then the
// first command of a mail gets no answer.
const maxIdle = time.Minute

// maxConnectionAge is how old a connection may be when a mail begins; then a new one is opened,
// perhaps to another address of the server.
const maxConnectionAge = 5 * time.Minute

// Client sends mails over connections to one server. Its methods are safe for concurrent use. At most a fixed number are in use at once, and idle ones
// are kept for the next delivery. It has no goroutine; a stale connection is found when it is used.
type Client struct {
	server *server
	logger *slog.Logger
	inUse  chan struct{} // has an element for each connection in use

	mu     sync.Mutex
	idle   []*connection // the most recently used one is the last
	closed bool
}

// New makes a client from settings with defaults and without mistakes, which Check reports. It connects
// when a mail is sent. It logs a warning if the settings allow a password to be sent unencrypted.
//
// in.Dial opens the connections to the mail server, and also those to the authorization server,
// unless in.HTTPClient is set.
func New(in sinks.Instance, s Settings) (*Client, error) {
	server, err := newServer(s, in)
	if err != nil {
		return nil, err
	}
	logger := cmp.Or(in.Logger, slog.New(slog.DiscardHandler))
	if warning := s.tlsWarning(); warning != "" {
		logger.Warn(warning, "server", server.address)
	}
	return &Client{server: server, logger: logger, inUse: make(chan struct{}, s.Connections)}, nil
}

// Send sends a mail. Its errors have classes, and are *ServerError unless the client is closed.
func (p *Client) Send(ctx context.Context, m *Message) (done Sent, err error) {
	err = p.use(ctx, func(c *connection) (err error) {
		done, err = c.send(ctx, m)
		return err
	})
	return done, classify(err)
}

// Check sends a NOOP over an idle or a new connection. Its errors have the classes of those of Send.
func (p *Client) Check(ctx context.Context) error {
	return classify(p.use(ctx, func(c *connection) error { return c.noop(ctx) }))
}

// use calls exchange with an idle or a new connection. If the server has closed the idle connection,
// use calls exchange again with a new one. That is safe because only a mail's first command was
// sent.
func (p *Client) use(ctx context.Context, exchange func(*connection) error) error {
	if err := p.waitTurn(ctx); err != nil {
		return err
	}
	defer func() { <-p.inUse }()
	c, err := p.take()
	if err != nil {
		return err
	}
	if c != nil {
		err := exchange(c)
		p.giveBack(c, err)
		if !isStale(err) {
			return err
		}
		p.logger.DebugContext(ctx, "idle connection to the mail server was stale", "server", p.server.address, "error", err)
	}
	if c, err = p.server.connect(ctx); err != nil {
		return err
	}
	err = exchange(c)
	p.giveBack(c, err)
	return err
}

func (p *Client) waitTurn(ctx context.Context) error {
	if ctx.Err() != nil {
		return p.server.failure(StepWait, ctx.Err()) // an ended context would break a connection
	}
	select {
	case p.inUse <- struct{}{}:
		return nil
	case <-ctx.Done():
		return p.server.failure(StepWait, ctx.Err())
	}
}

// take returns the idle connection that was used last, or nil if there is none that may be used.
func (p *Client) take() (*connection, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	now := time.Now()
	p.idle = slices.DeleteFunc(p.idle, func(c *connection) bool {
		gone := now.Sub(c.idleSince) > maxIdle || now.Sub(c.since) > p.server.maxAge
		if gone {
			c.leave()
		}
		return gone
	})
	if len(p.idle) == 0 {
		return nil, nil
	}
	last := len(p.idle) - 1
	c := p.idle[last]
	p.idle = p.idle[:last]
	return c, nil
}

// giveBack keeps a connection for the next delivery, unless it is broken. err is the result of its
// last exchange. If it is about the destination, no idle connection is used again either.
func (p *Client) giveBack(c *connection, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if isAboutDestination(err) {
		for _, other := range p.idle {
			other.leave()
		}
		p.idle = nil
	}
	if c.broken || p.closed {
		c.cut()
		return
	}
	c.idleSince = time.Now()
	p.idle = append(p.idle, c)
}

// Close closes the idle connections with QUIT. Connections in use are closed by giveBack.
func (p *Client) Close(ctx context.Context) {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, c := range idle {
		c.quit(ctx)
	}
}
