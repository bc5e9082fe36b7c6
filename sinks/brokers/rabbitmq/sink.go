// Package rabbitmq publishes notifications to an exchange of RabbitMQ, or of another broker
// that speaks AMQP 0-9-1 with publisher confirms.
//
// A delivery counts as made when the broker has confirmed the message. The message is then in all
// its queues, and on disk if the queue is durable. Messages are persistent and mandatory, so a
// message that no queue gets is an error and is not dropped silently.
//
// The message has the form of Watermill's AMQP library, which can consume it with its
// DefaultMarshaler: the metadata becomes headers. AMQP's properties message-id, type, content-type,
// correlation-id and timestamp are also set.
package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers"
	"github.com/waybill-go/waybill/sinks/internal/redact"
	"github.com/waybill-go/waybill/sinks/publisher"
)

// Kind is the sink kind rabbitmq.
func Kind() sinks.Kind {
	return sinks.NewKind("rabbitmq", "a message to an exchange of RabbitMQ for each notification, by AMQP 0-9-1",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) }, answers...)
}

// Sink publishes to an exchange. Its methods are safe for concurrent use, except that Close must be
// the last call.
type Sink struct {
	*publisher.Lazy
	retiring    *sync.WaitGroup    // counts retired connections that are still open
	credentials redact.Credentials // removed from all errors
}

var (
	_ sinks.Sink          = (*Sink)(nil)
	_ sinks.Collector     = (*Sink)(nil)
	_ sinks.Closer        = (*Sink)(nil)
	_ sinks.HealthChecker = (*Sink)(nil)
)

// New makes a sink from a configuration, and validates it. The first delivery connects. Call
// SetDefaults before you set fields, because a zero Timeout is a mistake.
func New(in sinks.Instance, c Config) (*Sink, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	u, err := c.parsed()
	if err != nil {
		return nil, err
	}
	publishing, err := brokers.Encoded(c.publishing(), in, c.Encoding)
	if err != nil {
		return nil, err
	}
	retiring := new(sync.WaitGroup)
	lazy, err := publisher.NewLazy(func(ctx context.Context) (message.Publisher, error) {
		return connect(ctx, in, c, retiring)
	}, publishing)
	if err != nil {
		return nil, err
	}
	return &Sink{lazy, retiring, redact.New(brokers.Secret(u.User))}, nil
}

// Deliver publishes one message, as [publisher.Lazy.Deliver] does.
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	return s.retry(func() (notification.Receipt, error) { return s.Lazy.Deliver(ctx, d) })
}

// DeliverCollection publishes the messages of all members, as [publisher.Lazy.DeliverCollection] does.
func (s *Sink) DeliverCollection(ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
	return s.retry(func() (notification.Receipt, error) { return s.Lazy.DeliverCollection(ctx, c) })
}

// retry makes a call until its connection is not retired.
func (s *Sink) retry(call func() (notification.Receipt, error)) (notification.Receipt, error) {
	for {
		receipt, err := call()
		if !errors.Is(err, errRetired) {
			return receipt, s.credentials.Error(err)
		}
	}
}

// CheckHealth connects, and checks that the broker accepts messages and that the exchange exists.
func (s *Sink) CheckHealth(ctx context.Context) error {
	for {
		if err := s.Lazy.CheckHealth(ctx); !errors.Is(err, errRetired) {
			return s.credentials.Error(err)
		}
	}
}

// Close closes all connections. If ctx ends first, they are closed in the background.
func (s *Sink) Close(ctx context.Context) error {
	if err := s.Lazy.Close(ctx); err != nil {
		return err
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.retiring.Wait()
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a connection is still closing: %w", ctx.Err())
	}
}
