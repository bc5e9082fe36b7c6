package publisher

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// ErrClosed means that the sink is closed and does not connect again.
var ErrClosed = errors.New("publisher is closed")

// Lazy is a sink that makes its publisher for the first delivery, for libraries that
// connect when a publisher is made, such as those for AMQP and NATS. A program can then
// start while its broker is down. Use it for a kind of the configuration file: see the
// package's example.
type Lazy struct {
	sink      *Sink
	publisher *lazyPublisher
}

var (
	_ sinks.Sink          = (*Lazy)(nil)
	_ sinks.Collector     = (*Lazy)(nil)
	_ sinks.Closer        = (*Lazy)(nil)
	_ sinks.HealthChecker = (*Lazy)(nil)
)

// NewLazy returns a sink that owns what connect returns. It does not connect yet. It fails
// with ErrTopic.
//
// connect is called for the first delivery or health check, with its context, and while it
// fails, again for later ones. Calls do not overlap: deliveries that come during a call
// share its outcome. An error without a class is unavailable, and uses up no attempt.
// connect must limit its own time, and leave nothing open when it fails.
//
// The library must reconnect after it loses its connection. If it does not, give the
// publisher a method Lost() bool: once that returns true, the sink closes the publisher and
// calls connect for the next delivery.
//
// If the publisher is a [sinks.HealthChecker], its health is checked; any other publisher is
// healthy once it is connected.
func NewLazy(connect func(context.Context) (message.Publisher, error), c Config) (*Lazy, error) {
	p := &lazyPublisher{connect: connect}
	sink, err := New(p, c)
	if err != nil {
		return nil, err
	}
	return &Lazy{sink, p}, nil
}

// Deliver publishes one message, as [Sink.Deliver] does, once there is a connection.
func (l *Lazy) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	return l.sink.Deliver(ctx, d)
}

// CollectionSize returns 0: a collection can have any number of members.
func (l *Lazy) CollectionSize() int { return l.sink.CollectionSize() }

// DeliverCollection publishes the messages of all members, as [Sink.DeliverCollection] does, once there
// is a connection.
func (l *Lazy) DeliverCollection(ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
	return l.sink.DeliverCollection(ctx, c)
}

// CheckHealth connects, and checks the publisher's health if it is a [sinks.HealthChecker], and the encoder's.
func (l *Lazy) CheckHealth(ctx context.Context) error {
	p, err := l.publisher.get(ctx)
	if err != nil {
		return err
	}
	if checker, ok := p.(sinks.HealthChecker); ok {
		if err := checker.CheckHealth(ctx); err != nil {
			return err
		}
	}
	if l.sink.encoder != nil {
		return l.sink.encoder.CheckHealth(ctx)
	}
	return nil
}

// Close closes the publisher, as [Sink.Close] does.
func (l *Lazy) Close(ctx context.Context) error { return l.sink.Close(ctx) }

// lazyPublisher makes a publisher with connect when it needs one. Its methods are safe for
// concurrent use.
type lazyPublisher struct {
	connect func(context.Context) (message.Publisher, error)

	mu      sync.Mutex
	current message.Publisher // nil while there is none
	running *attempt          // nil while no call of connect is running
	closed  bool
}

// attempt is a call of connect. publisher and err are set before done is closed.
type attempt struct {
	done      chan struct{}
	publisher message.Publisher
	err       error
}

func (l *lazyPublisher) Publish(topic string, messages ...*message.Message) error {
	p, err := l.get(messages[0].Context()) // a sink publishes at least one, and all with its context
	if err != nil {
		return err
	}
	return p.Publish(topic, messages...)
}

// get returns the current publisher. If there is none, or it has lost its connection, get calls
// connect, or waits for the running call.
func (l *lazyPublisher) get(ctx context.Context) (message.Publisher, error) {
	l.mu.Lock()
	switch a := l.running; {
	case l.closed:
		l.mu.Unlock()
		return nil, ErrClosed
	case a != nil:
		l.mu.Unlock()
		select {
		case <-a.done:
			return a.publisher, a.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case l.current != nil && !isLost(l.current):
		defer l.mu.Unlock()
		return l.current, nil
	}
	a, lost := &attempt{done: make(chan struct{})}, l.current
	l.running, l.current = a, nil
	l.mu.Unlock()

	if lost != nil {
		_ = lost.Close() // an error does not matter: its connection is already lost
	}
	p, err := l.connect(ctx)
	l.finish(a, p, err)
	return a.publisher, a.err
}

// finish ends an attempt with the result of connect.
func (l *lazyPublisher) finish(a *attempt, p message.Publisher, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		a.err = orUnavailable(err)
	case l.closed:
		a.err = errors.Join(ErrClosed, p.Close())
	default:
		a.publisher, l.current = p, p
	}
	l.running = nil
	close(a.done)
}

func isLost(p message.Publisher) bool {
	loser, ok := p.(interface{ Lost() bool })
	return ok && loser.Lost()
}

func orUnavailable(err error) error {
	if hasClass(err) {
		return err
	}
	return sinks.Unavailable(err)
}

// Close closes the publisher, and waits for a running call of connect.
func (l *lazyPublisher) Close() error {
	l.mu.Lock()
	again := l.closed
	l.closed = true
	current, running := l.current, l.running
	l.mu.Unlock()
	if running != nil {
		<-running.done
	}
	if again || current == nil {
		return nil
	}
	return current.Close()
}
