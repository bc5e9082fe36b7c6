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
	// closing is how long the broker may take to say goodbye.
	closing = time.Second
)

// connection publishes until it is lost. Each message in flight has a channel of its own, so
// that what the broker says on it is about this message. Its methods may be called in
// parallel.
type connection struct {
	config  Config
	amqp    *amqp.Connection
	socket  net.Conn
	blocked atomic.Pointer[string] // why the broker takes no messages now
	watched chan struct{}          // closed when that is no longer noted

	mu   sync.Mutex
	idle []*channel
}

var (
	_ message.Publisher   = (*connection)(nil)
	_ sinks.HealthChecker = (*connection)(nil)
)

// connect dials, logs in, and declares the exchange if it should.
func connect(ctx context.Context, in sinks.Instance, c Config) (message.Publisher, error) {
	address, encryption, err := c.address()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	conn := &connection{config: c, watched: make(chan struct{})}
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

// declare declares the exchange, if it should.
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

// Publish publishes each message and waits for its confirmation, up to the timeout. It does
// not leave when the message's context ends: what is on its way may still be stored, after
// newer messages of its key.
func (c *connection) Publish(key string, messages ...*message.Message) error {
	for _, m := range messages {
		publishing, err := newPublishing(key, m)
		if err != nil {
			return sinks.Permanent(err)
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

// CheckHealth asks for the exchange.
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

// within gives up the connection when the broker does not answer in time: no call of the
// library has a limit of its own, nor has a write to a broker that does not read.
func (c *connection) within(call func() error) error {
	giveUp := time.AfterFunc(c.config.Timeout, func() { _ = c.socket.Close() })
	err := call()
	if !giveUp.Stop() && err != nil {
		return errors.Join(fmt.Errorf("%w within %s", ErrNoAnswer, c.config.Timeout), c.blocking())
	}
	return err
}

func (c *connection) blocking() error {
	if reason := c.blocked.Load(); reason != nil {
		return fmt.Errorf("%w: %s", ErrBlocked, *reason)
	}
	return nil
}

// withChannel lends a channel, and takes it back unless it is closed.
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

// Lost says that the connection is of no use any more.
func (c *connection) Lost() bool { return c.amqp.IsClosed() }

// Close ends the connection. A broker that does not answer has a second.
func (c *connection) Close() error {
	_ = c.amqp.CloseDeadline(time.Now().Add(closing)) // it may be gone already
	_ = c.socket.Close()
	<-c.watched
	return nil
}
