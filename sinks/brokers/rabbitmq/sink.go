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

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/publisher"
)

// Kind is the kind rabbitmq for the configuration file.
func Kind() sinks.Kind {
	return sinks.NewKind("rabbitmq", "Publishes each notification to an exchange of RabbitMQ, by AMQP 0-9-1.",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) }, answers...)
}

// New returns a sink for the configuration, which it validates. It connects nothing: the
// first delivery does. The zero value of Timeout is no default; start from SetDefaults.
func New(in sinks.Instance, c Config) (*publisher.Lazy, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return publisher.NewLazy(func(ctx context.Context) (message.Publisher, error) {
		return connect(ctx, in, c)
	}, c.publishing())
}
