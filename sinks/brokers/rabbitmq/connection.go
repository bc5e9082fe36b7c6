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
	// grace is what others in flight have when a message is overdue. The engine waits 2 s
	// beyond a delivery's time.
	grace = time.Second
)

// errRetired: nothing was sent, since the connection has ended; a new one is to be made.
var errRetired = errors.New("the connection was retired")

// connection publishes until it is lost. Each message in flight has a channel of its own, so
// that what the broker says on it is about this message. Its methods may be called in
// parallel.
type connection struct {
	config  Config
	amqp    *amqp.Connection
	socket  net.Conn
	blocked atomic.Pointer[string] // why the broker takes no messages now
	watched chan struct{}          // closed when that is no longer noted

	retiring *sync.WaitGroup // of the sink: what still goes on

	mu       sync.Mutex
	idle     []*channel
	inFlight int         // calls
	overdue  int         // of these, the broker did not answer in time
	retired  *time.Timer // ends the connection; nil if nothing was overdue
	ended    bool        // by that, or by Close
}

var (
	_ message.Publisher   = (*connection)(nil)
	_ sinks.HealthChecker = (*connection)(nil)
)

// connect dials, logs in, and declares the exchange if it should.
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

// within ends when the broker does not answer in time: no call of the library has a limit of
// its own, nor has a write to a broker that does not read.
//
// Only the end of the connection ends such a call, and keeps what it has sent from being
// stored later. So the connection is retired: what comes now goes over a new one, and this one
// is closed when all others in flight are answered, or after the grace.
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

// retire is for each call that is overdue.
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

// finish follows every begin.
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

// end closes a retired connection without a word: what the broker has not read yet, it shall
// not read.
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

// Lost says that new calls need another connection.
func (c *connection) Lost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.retired != nil || c.ended || c.amqp.IsClosed()
}

// Close ends the connection. A broker that does not answer has a second. One that is retired
// ends by itself.
func (c *connection) Close() error {
	c.mu.Lock()
	if c.retired != nil {
		c.mu.Unlock()
		return nil
	}
	c.ended = true
	c.mu.Unlock()
	_ = c.amqp.CloseDeadline(time.Now().Add(closing)) // it may be gone already
	_ = c.socket.Close()
	<-c.watched
	return nil
}
