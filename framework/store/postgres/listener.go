package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres/internal/catalog"
)

const (
	// heartbeat is the pause between two pings on a listening connection.
	heartbeat = 10 * time.Second
	// silence is how long a connection may be silent: a heartbeat, and 5 s for the answer. It
	// also bounds connecting.
	silence = heartbeat + 5*time.Second
)

var (
	_ store.Listener  = (*Store)(nil)
	_ store.Announcer = (*Store)(nil)
)

// lanesNews is the payload of a notification about a lane; others have none.
const lanesNews = "lanes"

func newsOf(payload string) store.News {
	if payload == lanesNews {
		return store.NewsLanes
	}
	return store.NewsRows
}

// listening is the configuration of listening connections.
type listening struct {
	dsn       func(ctx context.Context) (string, error) // nil: sessions, or it does not listen
	sessions  Sessions
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	channel   string
	heartbeat time.Duration
	silence   time.Duration
}

// newListening names the channel by the configured prefix, so that all processes that announce or
// listen use the same name.
func newListening(c Config) (listening, error) {
	l := listening{dsn: c.ListenDSN, sessions: c.Sessions, dial: c.ListenDial, channel: c.Prefix, heartbeat: heartbeat, silence: silence}
	switch {
	case c.Listen != "" && c.ListenDSN != nil:
		return listening{}, errors.New("two addresses to listen at are given, Listen and ListenDSN; keep one")
	case c.Sessions != nil && (c.Listen != "" || c.ListenDSN != nil):
		return listening{}, errors.New("Sessions and an address to listen at are given; keep one")
	case c.Listen != "":
		if err := checkDSN(c.Listen); err != nil {
			return listening{}, err
		}
		l.dsn = func(context.Context) (string, error) { return c.Listen, nil }
	case c.ListenDial != nil && c.ListenDSN == nil:
		return listening{}, errors.New("ListenDial has no address to listen at; give Listen or ListenDSN")
	}
	if l.dial == nil {
		l.dial = new(net.Dialer).DialContext
	}
	return l, nil
}

// on reports whether the store listens.
func (l listening) on() bool { return l.dsn != nil || l.sessions != nil }

// checkDSN does not show the address in its error, since it may contain a password.
func checkDSN(dsn string) error {
	if _, err := pq.NewConnector(PlainDSN(dsn)); err != nil {
		return errors.New("the address to listen at cannot be parsed")
	}
	return nil
}

// Announce notifies the channel that is named like the log; see store.Announcer. It uses a
// connection of the pool for one round trip, and works through a transaction pooler. Its commit does not
// wait for the disk: nothing is lost with it.
func (s *Store) Announce(ctx context.Context) error {
	if _, err := s.db.ExecContext(ctx, `SELECT set_config('synchronous_commit', 'off', true), pg_notify(`+pq.QuoteLiteral(s.listening.channel)+`, '')`); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	return nil
}

// Listen listens on a separate connection, if the Config has an address for one; see
// store.Listener. It pings the connection, so that a dead one is closed within 15 s.
func (s *Store) Listen(ctx context.Context, hear func(store.News)) error {
	if !s.listening.on() {
		return nil
	}
	run := s.listening.run
	if s.listening.sessions != nil {
		run = s.listening.await
	}
	for {
		err := run(ctx, hear)
		if ctx.Err() != nil || errors.Is(err, store.ErrNoPresence) {
			return nil
		}
		if !catalog.Refused(err, idleSession) {
			return fmt.Errorf("listen: %w", err)
		}
		// The server's timeout is shorter than the time between pings. That is no failure.
		if !pace.Sleep(ctx, idlePause) {
			return nil
		}
	}
}

// idlePause is how long to wait before listening again, after the server has ended an idle session.
const idlePause = time.Second

// run listens on one connection until it is lost or ctx is done. pq's listener would connect again
// by itself, but does not say why it cannot, so it is closed at the first error.
func (l listening) run(ctx context.Context, hear func(store.News)) error {
	ctx, give := context.WithCancelCause(ctx)
	defer give(nil)
	dsn, err := l.address(ctx)
	if err != nil {
		return err
	}
	connection := pq.NewDialListener(aliveDialer{ctx: ctx, dial: l.dial, silence: l.silence}, dsn, time.Millisecond, time.Millisecond,
		func(event pq.ListenerEventType, err error) {
			if event == pq.ListenerEventDisconnected || event == pq.ListenerEventConnectionAttemptFailed {
				give(withAdvice(err))
			}
		})
	context.AfterFunc(ctx, func() { _ = connection.Close() })

	// A separate goroutine takes the notifications, since the one that waits for an answer gets
	// it only after all notifications before it.
	ready := make(chan struct{})
	var attending sync.WaitGroup
	defer attending.Wait()
	attending.Go(func() { give(l.attend(ctx, connection, ready)) })
	for {
		select {
		case <-ready:
			ready = nil
			hear(store.NewsUnknown)
		case notice, open := <-connection.Notify:
			switch {
			case !open: // all its goroutines have ended
				return context.Cause(ctx)
			case notice != nil:
				hear(newsOf(notice.Extra))
			default: // connected again
				hear(store.NewsRows)
			}
		}
	}
}

// address returns the address of the next connection.
func (l listening) address(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, l.silence)
	defer cancel()
	dsn, err := l.dsn(ctx)
	if err != nil {
		return "", fmt.Errorf("ask for the address: %w", err)
	}
	return PlainDSN(dsn), checkDSN(dsn)
}

// attend subscribes, closes ready, and pings the connection until ctx is done.
func (l listening) attend(ctx context.Context, connection *pq.Listener, ready chan<- struct{}) error {
	if err := connection.Listen(l.channel); err != nil {
		return err
	}
	close(ready)
	beat := time.NewTicker(l.heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-beat.C:
			if err := ping(connection); err != nil {
				return err
			}
		}
	}
}

// ping waits until the server has answered, or the connection is closed because of silence. pq
// panics if the server refuses the ping, for example because another session cancels it.
func ping(connection *pq.Listener) (err error) {
	defer func() {
		if refused := recover(); refused != nil {
			err = fmt.Errorf("ping: %v", refused)
		}
	}()
	return connection.Ping()
}

// aliveDialer makes connections that fail when the other side is silent for too long, and that are
// closed when ctx is done. pq's listener cannot be interrupted otherwise: it holds its lock while
// it connects, subscribes and pings.
type aliveDialer struct {
	ctx     context.Context
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	silence time.Duration
}

var _ pq.Dialer = aliveDialer{}

func (d aliveDialer) Dial(network, address string) (net.Conn, error) {
	return d.DialTimeout(network, address, d.silence)
}

func (d aliveDialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.ctx, min(timeout, d.silence))
	defer cancel()
	c, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	alive := &aliveConn{Conn: c, silence: d.silence}
	alive.forget = context.AfterFunc(d.ctx, func() { _ = c.Close() })
	return alive, nil
}

// aliveConn fails with errSilent if nothing can be read or written for longer than silence.
type aliveConn struct {
	net.Conn
	silence time.Duration
	forget  func() bool
}

func (c *aliveConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.silence)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	return n, silent(err)
}

func (c *aliveConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.silence)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	return n, silent(err)
}

func (c *aliveConn) Close() error {
	c.forget()
	return c.Conn.Close()
}

func silent(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errSilent
	}
	return err
}
