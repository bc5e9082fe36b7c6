package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-go/waybill/sinks"
)

const (
	heartbeat = 10 * time.Second
	// closeTimeout is how long the broker may take to answer when the connection is closed.
	closeTimeout = time.Second
	// grace is how long other calls in flight may take after a call was overdue. The engine
	// waits 2 s after a delivery's deadline.
	grace = time.Second
)

// errRetired means that nothing was sent, because the connection is retired. The sink then makes a
// new connection.
var errRetired = errors.New("the connection was retired")

// connection publishes until it is lost. Each message in flight uses a separate channel, so that
// the broker's errors on the channel are about this message. Its methods are safe for concurrent
// use.
type connection struct {
	config  Config
	amqp    *amqp.Connection
	socket  net.Conn
	blocked atomic.Pointer[string] // why the broker accepts no messages now; nil if it does
	watched chan struct{}          // closed when watchBlocking has returned

	retiring *sync.WaitGroup // the sink's count of retired connections that are still open

	mu       sync.Mutex
	idle     []*channel
	inFlight int         // running calls
	overdue  int         // those of them that the broker did not answer in time
	retired  *time.Timer // ends the retired connection; nil unless it is retired
	ended    bool        // the connection is closed
}

var (
	_ message.Publisher   = (*connection)(nil)
	_ sinks.HealthChecker = (*connection)(nil)
)

// connect dials, authenticates, and declares the exchange if exchange_type is set.
func connect(ctx context.Context, in sinks.Instance, c Config, retiring *sync.WaitGroup) (message.Publisher, error) {
	address, encryption, err := c.address()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	conn := &connection{config: c, watched: make(chan struct{}), retiring: retiring}
	dial := in.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	stop := func() bool { return true }
	conn.amqp, err = amqp.DialConfig(address, amqp.Config{
		Heartbeat:       heartbeat,
		Properties:      amqp.Table{"connection_name": "waybill-" + in.Name, "product": "Waybill"},
		TLSClientConfig: encryption,
		Dial: func(network, address string) (net.Conn, error) {
			socket, err := dial(ctx, network, address)
			if err == nil {
				conn.socket = socket
				stop = context.AfterFunc(ctx, func() { _ = socket.Close() })
			}
			return socket, err
		},
	})
	if !stop() {
		return nil, errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return nil, err
	}
	go conn.watchBlocking(conn.amqp.NotifyBlocked(make(chan amqp.Blocking, 1)))
	if err := conn.within(conn.declare); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// declare declares the exchange if exchange_type is set.
func (c *connection) declare() error {
	if c.config.ExchangeType == "" {
		return nil
	}
	return c.withChannel(func(ch *channel) error {
		return ch.ExchangeDeclare(c.config.Exchange, c.config.ExchangeType, true, false, false, false, nil)
	})
}

func (c *connection) watchBlocking(blockings <-chan amqp.Blocking) {
	defer close(c.watched)
	for b := range blockings {
		if b.Active {
			c.blocked.Store(&b.Reason)
		} else {
			c.blocked.Store(nil)
		}
	}
}

// Publish publishes each message and waits for its confirmation, up to the timeout. It does not
// return when the message's context ends, because the message could still be stored, after newer
// messages of its key.
func (c *connection) Publish(key string, messages ...*message.Message) error {
	for _, m := range messages {
		publishing, err := newPublishing(key, m)
		if err != nil {
			return sinks.Invalid(err)
		}
		err = c.within(func() error {
			return c.withChannel(func(ch *channel) error {
				return ch.publish(c.config.Exchange, key, c.config.Mandatory, publishing)
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// CheckHealth checks that the broker accepts messages and that the exchange exists.
func (c *connection) CheckHealth(context.Context) error {
	if err := c.blocking(); err != nil {
		return err
	}
	return c.within(func() error {
		return c.withChannel(func(ch *channel) error {
			if c.config.Exchange == "" {
				return nil
			}
			return ch.ExchangeDeclarePassive(c.config.Exchange, amqp.ExchangeTopic, true, false, false, false, nil)
		})
	})
}

// within runs a call with a time limit. The library's calls have none, nor has a write to a broker
// that does not read.
//
// Only the end of the connection ends an overdue call, and prevents its message from being stored
// later. So the connection is retired: new calls use another one, and this one is closed when the
// other calls in flight have ended, or after grace.
func (c *connection) within(call func() error) error {
	if !c.begin() {
		return errRetired
	}
	late := time.AfterFunc(c.config.Timeout, c.retire)
	err := call()
	inTime := late.Stop()
	c.finish(inTime)
	if !inTime && err != nil {
		return errors.Join(fmt.Errorf("%w within %s", ErrNoAnswer, c.config.Timeout), c.blocking())
	}
	return err
}

func (c *connection) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.inFlight++
	return true
}

// retire counts an overdue call, and retires the connection.
func (c *connection) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.overdue++
	if c.retired == nil && !c.ended {
		c.retiring.Add(1)
		c.retired = time.AfterFunc(grace, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.end()
		})
	}
	c.endIfDone()
}

// finish ends a call that begin has counted.
func (c *connection) finish(inTime bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
	if !inTime {
		c.overdue--
	}
	c.endIfDone()
}

func (c *connection) endIfDone() {
	if c.retired != nil && c.inFlight == c.overdue {
		c.end()
	}
}

// end closes the socket of a retired connection at once. The broker must not read what it has not
// read yet.
func (c *connection) end() {
	if c.ended {
		return
	}
	c.ended = true
	c.retired.Stop()
	if tcp, ok := c.socket.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.socket.Close()
	go func() {
		defer c.retiring.Done()
		<-c.watched
	}()
}

func (c *connection) blocking() error {
	if reason := c.blocked.Load(); reason != nil {
		return fmt.Errorf("%w: %s", ErrBlocked, *reason)
	}
	return nil
}

// withChannel calls use with a channel, and keeps the channel for other calls unless it is closed.
func (c *connection) withChannel(use func(*channel) error) error {
	ch, err := c.channel()
	if err != nil {
		return err
	}
	err = use(ch)
	if !ch.IsClosed() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.idle = append(c.idle, ch)
	}
	return err
}

func (c *connection) channel() (*channel, error) {
	c.mu.Lock()
	for n := len(c.idle) - 1; n >= 0; n-- {
		ch := c.idle[n]
		c.idle = c.idle[:n]
		if !ch.IsClosed() {
			c.mu.Unlock()
			return ch, nil
		}
	}
	c.mu.Unlock()
	return openChannel(c.amqp)
}

// Lost reports whether new calls need another connection.
func (c *connection) Lost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.retired != nil || c.ended || c.amqp.IsClosed()
}

// Close closes the connection. It waits for the broker's answer for at most a second. A retired
// connection ends by itself.
func (c *connection) Close() error {
	c.mu.Lock()
	if c.retired != nil {
		c.mu.Unlock()
		return nil
	}
	c.ended = true
	c.mu.Unlock()
	_ = c.amqp.CloseDeadline(time.Now().Add(closeTimeout)) // the connection may already be lost
	_ = c.socket.Close()
	<-c.watched
	return nil
}
