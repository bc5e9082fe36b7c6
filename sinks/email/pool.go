package email

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// maxIdle is how long an idle connection is trusted. Servers must wait five
// minutes for a command (RFC 5321, section 4.5.3.2.7), but firewalls forget
// connections earlier, and those then swallow a mail's first command in silence.
const maxIdle = time.Minute

// pool lends connections to the server, at most a fixed number at once, and
// keeps those that are idle for the next delivery. It has no goroutine: what
// went stale is found when it is needed.
type pool struct {
	server *server
	logger *slog.Logger
	turns  chan struct{} // holds one for each connection in use

	mu     sync.Mutex
	idle   []*connection // the last one was used last
	closed bool
}

func newPool(s *server, size int, logger *slog.Logger) *pool {
	return &pool{server: s, logger: logger, turns: make(chan struct{}, size)}
}

// use lends exchange a connection: an idle one, or a new one. An idle one that
// the server has left meanwhile is replaced once, with a new one, and exchange
// runs again; that is safe since nothing but a mail's first command was sent.
func (p *pool) use(ctx context.Context, exchange func(*connection) error) error {
	if err := p.waitTurn(ctx); err != nil {
		return err
	}
	defer func() { <-p.turns }()
	c, err := p.take()
	if err != nil {
		return err
	}
	if c != nil {
		err := exchange(c)
		p.giveBack(c)
		if !isStale(err) {
			return err
		}
		p.logger.DebugContext(ctx, "idle connection to the mail server was stale", "server", p.server.address, "error", err)
	}
	if c, err = p.server.connect(ctx); err != nil {
		return err
	}
	err = exchange(c)
	p.giveBack(c)
	return err
}

func (p *pool) waitTurn(ctx context.Context) error {
	if ctx.Err() != nil {
		return p.server.failure(StepWait, ctx.Err()) // and leave the connections alone
	}
	select {
	case p.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return p.server.failure(StepWait, ctx.Err())
	}
}

// take returns the idle connection that was used last, nil if there is none. If
// even that one is too old, all are.
func (p *pool) take() (*connection, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	if len(p.idle) == 0 {
		return nil, nil
	}
	last := len(p.idle) - 1
	if time.Since(p.idle[last].idleSince) > maxIdle {
		for _, c := range p.idle {
			c.cut()
		}
		p.idle = nil
		return nil, nil
	}
	c := p.idle[last]
	p.idle = p.idle[:last]
	return c, nil
}

// giveBack keeps a connection for the next delivery, unless it is spoilt.
func (p *pool) giveBack(c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.spoilt || p.closed {
		c.cut()
		return
	}
	c.idleSince = time.Now()
	p.idle = append(p.idle, c)
}

// close takes leave on the idle connections; those in use are closed when they
// are given back.
func (p *pool) close(ctx context.Context) {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, c := range idle {
		c.quit(ctx)
	}
}
