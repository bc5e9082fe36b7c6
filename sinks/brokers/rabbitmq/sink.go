// Package rabbitmq publishes notifications to an exchange of RabbitMQ, or of another broker
// that speaks AMQP 0-9-1 with publisher confirms.
//
// A delivery counts as made when the broker has confirmed the message: it is in all queues
// that it belongs to, on disk where the queue is durable. The message is persistent and
// mandatory, so that one which no queue gets is an error, and not dropped without a word.
//
// The message is that of Watermill's AMQP library, which can consume it with its
// DefaultMarshaler: the metadata are headers, and AMQP's own message-id, type,
// content-type, correlation-id and timestamp are filled in too.
package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/publisher"
)

// Kind is the kind rabbitmq for the configuration file.
func Kind() sinks.Kind {
	return sinks.NewKind("rabbitmq", "Publishes each notification to an exchange of RabbitMQ, by AMQP 0-9-1.",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) }, answers...)
}

// Sink publishes to an exchange. Its methods may be called in parallel; Close comes last.
type Sink struct {
	*publisher.Lazy
	retiring *sync.WaitGroup // connections that are not used for anything new
}

var (
	_ sinks.Sink          = (*Sink)(nil)
	_ sinks.Closer        = (*Sink)(nil)
	_ sinks.HealthChecker = (*Sink)(nil)
)

// New returns a sink for the configuration, which it validates. It connects nothing: the
// first delivery does. The zero value of Timeout is no default; start from SetDefaults.
func New(in sinks.Instance, c Config) (*Sink, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	retiring := new(sync.WaitGroup)
	lazy, err := publisher.NewLazy(func(ctx context.Context) (message.Publisher, error) {
		return connect(ctx, in, c, retiring)
	}, c.publishing())
	if err != nil {
		return nil, err
	}
	return &Sink{lazy, retiring}, nil
}

// Deliver publishes one message, as [publisher.Lazy.Deliver] does.
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	for {
		receipt, err := s.Lazy.Deliver(ctx, d)
		if !errors.Is(err, errRetired) {
			return receipt, err
		}
	}
}

// CheckHealth connects, and asks for the exchange.
func (s *Sink) CheckHealth(ctx context.Context) error {
	for {
		if err := s.Lazy.CheckHealth(ctx); !errors.Is(err, errRetired) {
			return err
		}
	}
}

// Close closes all connections. When ctx ends first they go on closing by themselves.
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
