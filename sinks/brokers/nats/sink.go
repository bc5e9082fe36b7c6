// Package nats publishes notifications to NATS JetStream.
//
// A delivery counts as made when a stream has acknowledged the message: it is stored as its
// stream stores, in a file and on as many servers as the stream has replicas. Nats-Msg-Id is
// the notification's id, so within its duplicate window a stream drops what comes again.
// The stream is not made here: declare it with what the data are worth.
//
// The message is that of Watermill's NATS library, which can consume it with [Marshaler]:
// the metadata are headers, the payload is the data.
package nats

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/publisher"
)

// Kind is the kind nats for the configuration file.
func Kind() sinks.Kind {
	return sinks.NewKind("nats", "Publishes each notification to a stream of NATS JetStream.",
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
