package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/waybill-go/waybill/sinks"
)

const (
	// dialTimeout is how long one server may take to answer.
	dialTimeout = 2 * time.Second
	// reconnectWait is the pause before a server is tried again.
	reconnectWait = 250 * time.Millisecond
	// pingInterval is the time between pings. After three without an answer, the connection
	// ends.
	pingInterval = 10 * time.Second
)

// errRetired means that nothing was sent, because new calls use another connection. The sink then makes one.
var errRetired = errors.New("the connection was retired")

// connection is a publisher with a client, which reconnects by itself after most errors. When its server has answered
// that it cannot be used, or has not answered, the connection is retired: a new one may get another server. Its methods
// are safe for concurrent use.
type connection struct {
	config Config
	client *nats.Conn
	stream nats.JetStreamContext
	dialer *dialer
	made   time.Time
	closed *atomic.Bool           // the client is closed and does not reconnect
	away   *atomic.Pointer[error] // why the last connection ended or could not be made

	mu       sync.Mutex
	inFlight int       // running calls
	stored   string    // subject of the message that was stored last
	storedAt time.Time // when that was
	retired  bool      // new calls need another connection
	ended    bool      // no call begins, and the last one closes the client
}

var (
	_ message.Publisher   = (*connection)(nil)
	_ sinks.HealthChecker = (*connection)(nil)
)

// connect connects to the first server that accepts the client, until ctx ends.
func connect(ctx context.Context, in sinks.Instance, c Config) (message.Publisher, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d := &dialer{open: in.Dial, timeout: min(dialTimeout, c.Timeout)}
	if d.open == nil {
		d.open = (&net.Dialer{}).DialContext
	}
	closed, away := new(atomic.Bool), new(atomic.Pointer[error])
	options, err := c.options(in, d, away)
	if err != nil {
		return nil, err
	}
	options = append(options, nats.ClosedHandler(func(*nats.Conn) { closed.Store(true) }))
	stop := context.AfterFunc(ctx, d.end)
	client, err := nats.Connect(strings.Join(c.Servers, ","), options...)
	if !stop() { // ctx has ended, and the sockets are closed
		if client != nil {
			client.Close()
		}
		return nil, errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return nil, err
	}
	conn := &connection{config: c, client: client, dialer: d, made: time.Now(), closed: closed, away: away}
	if conn.stream, err = client.JetStream(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// Publish publishes each message and waits for the stream's acknowledgement, up to the timeout. It
// does not return when the message's context ends, because the message could still be stored,
// after newer messages of its key.
func (c *connection) Publish(subject string, messages ...*message.Message) error {
	for _, m := range messages {
		call := callOf(m)
		call.connected = true
		if err := checkSubject(subject); err != nil {
			return sinks.Invalid(err)
		}
		encoded, err := Marshaler{}.Marshal(subject, m)
		if err != nil {
			return err
		}
		options := []nats.PubOpt{nats.AckWait(c.config.Timeout), nats.MsgId(headerValue(call.prefix + m.UUID))}
		if c.config.Stream != "" {
			options = append(options, nats.ExpectStream(c.config.Stream))
		}
		var stored *nats.PubAck
		err = c.use(func() error {
			begun := time.Now()
			var err error
			stored, err = c.stream.PublishMsg(encoded, options...)
			c.judge(subject, begun, err)
			return err
		})
		if err != nil {
			return c.explain(err)
		}
		if stored.Duplicate {
			call.duplicateOf = stored.Stream
		}
	}
	return nil
}

// use makes a call, unless the connection has ended.
func (c *connection) use(call func() error) error {
	c.mu.Lock()
	ended := c.ended
	if !ended {
		c.inFlight++
	}
	c.mu.Unlock()
	if ended {
		return errRetired
	}
	defer c.finish()
	return call()
}

func (c *connection) finish() {
	c.mu.Lock()
	c.inFlight--
	done := c.ended && c.inFlight == 0
	c.mu.Unlock()
	if done {
		c.disconnect()
	}
}

// judge finds out from the outcome of a message whether the connection's server can be used. A failure is about the
// message's subject if one of another subject was stored meanwhile, or before a quick answer.
func (c *connection) judge(subject string, begun time.Time, err error) {
	if errors.Is(err, nats.ErrConnectionClosed) {
		c.closed.Store(true) // the handler may be called later
	}
	if !isTimeout(err) {
		begun = begun.Add(-c.config.Timeout)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.stored, c.storedAt = subject, time.Now()
	case isAboutServer(err) && (subject == c.stored || c.storedAt.Before(begun)):
		c.retired = true
	}
}

// explain returns why there is no connection in place of the client's error, which is about its buffer for messages
// without a connection.
func (c *connection) explain(err error) error {
	if !errors.Is(err, nats.ErrReconnectBufExceeded) {
		return err
	}
	if why := c.away.Load(); why != nil {
		return fmt.Errorf("%w: %w", ErrNotConnected, *why)
	}
	return ErrNotConnected
}

// Lost reports whether new calls need another connection: this one is retired or too old, or the client is closed. After
// some errors of the server, it does not reconnect. Lost does not call the client, which holds its lock while it dials.
func (c *connection) Lost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.retired || c.closed.Load() || time.Since(c.made) >= c.config.MaxConnectionAge
}

// Close closes the connection. One that is lost is closed when its calls have ended, which takes up to the timeout.
func (c *connection) Close() error {
	lost := c.Lost()
	c.mu.Lock()
	c.ended = true
	wait := lost && c.inFlight > 0
	c.mu.Unlock()
	if !wait {
		c.disconnect()
	}
	return nil
}

// disconnect closes the sockets and the client. It also ends a running attempt to reconnect, for which the client would
// wait.
func (c *connection) disconnect() {
	c.dialer.end()
	c.client.Close()
}

func (c *Config) options(in sinks.Instance, d *dialer, away *atomic.Pointer[error]) ([]nats.Option, error) {
	note := func(_ *nats.Conn, err error) {
		if err != nil {
			away.Store(&err)
		}
	}
	secrets, logger := c.secrets(), in.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	options := []nats.Option{
		nats.Name("waybill-" + in.Name),
		nats.Timeout(d.timeout),
		nats.MaxReconnects(-1), // by default, the client is closed after 60 attempts
		nats.ReconnectWait(reconnectWait),
		// Otherwise the client does not try a server again that has refused the user twice,
		// although the user may be allowed again.
		nats.IgnoreAuthErrorAbort(),
		// Publishing without a connection fails at once. By default, the message is buffered
		// and sent after the client has reconnected, although it was reported as failed.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(pingInterval),
		nats.FlusherTimeout(c.Timeout), // of a write, for a server that does not read; by default a minute
		nats.SetCustomDialer(d),
		nats.SkipHostLookup(), // the dialer resolves the host, within its timeout
		nats.DisconnectErrHandler(note),
		nats.ReconnectErrHandler(note),
		// The default prints to standard error. A refusal of the user while it reconnects comes here only.
		nats.ErrorHandler(func(conn *nats.Conn, _ *nats.Subscription, err error) {
			note(conn, err)
			logger.Warn("NATS reports an error", "error", secrets.Error(err))
		}),
	}
	credentials, err := c.credentials()
	if err != nil {
		return nil, err
	}
	if credentials != nil {
		options = append(options, credentials)
	}
	encryption, err := c.encryption()
	if err != nil {
		return nil, err
	}
	if encryption != nil {
		options = append(options, nats.Secure(encryption))
	}
	return options, nil
}

// CheckHealth waits for an answer of the server, and checks that the configured stream exists.
func (c *connection) CheckHealth(ctx context.Context) error {
	return c.use(func() error {
		err := c.check(ctx)
		if isAboutServer(err) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.retired = true
		}
		return err
	})
}

func (c *connection) check(ctx context.Context) error {
	if _, bounded := ctx.Deadline(); !bounded { // the client requires a deadline
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, dialTimeout)
		defer cancel()
	}
	if err := c.client.FlushWithContext(ctx); err != nil {
		return err
	}
	if c.config.Stream == "" {
		return nil
	}
	js, err := c.client.JetStream(nats.Context(ctx))
	if err != nil {
		return err
	}
	_, err = js.StreamInfo(c.config.Stream)
	return err
}
