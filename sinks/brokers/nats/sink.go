// Package nats publishes notifications to NATS JetStream.
//
// A delivery counts as made when a stream has acknowledged the message. The stream's settings
// determine its durability: file or memory, and the number of replicas. Nats-Msg-Id has the sink's
// name and the notification's id. So within its duplicate window, a stream drops repeated messages
// of this sink, and the receipt says so. The sink does not create the stream.
//
// The message has the form of Watermill's NATS library, which can consume it with [Marshaler]: the
// metadata becomes headers, and the payload is the data.
package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/internal/redact"
	"github.com/waybill-go/waybill/sinks/publisher"
)

// Kind is the sink kind nats.
func Kind() sinks.Kind {
	return sinks.NewKind("nats", "a message to a stream of NATS JetStream for each notification",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) }, answers...)
}

// Sink publishes to streams. Its methods are safe for concurrent use, except that Close must be the
// last call.
type Sink struct {
	*publisher.Lazy
	name    string
	close   context.CancelFunc // ends a running call of connect
	secrets redact.Credentials // removed from all errors
}

var (
	_ sinks.Sink          = (*Sink)(nil)
	_ sinks.Collector     = (*Sink)(nil)
	_ sinks.Closer        = (*Sink)(nil)
	_ sinks.HealthChecker = (*Sink)(nil)
)

// New makes a sink from a configuration, and validates it. The first delivery connects. Call
// SetDefaults before you set fields, because a zero Timeout or MaxConnectionAge is a mistake.
func New(in sinks.Instance, c Config) (*Sink, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	publishing, err := brokers.Encoded(c.publishing(), in, c.Encoding)
	if err != nil {
		return nil, err
	}
	open, closeIt := context.WithCancel(context.Background())
	lazy, err := publisher.NewLazy(func(ctx context.Context) (message.Publisher, error) {
		ctx, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		defer context.AfterFunc(open, cancel)()
		return connect(ctx, in, c)
	}, publishing)
	if err != nil {
		closeIt()
		return nil, err
	}
	return &Sink{lazy, in.Name, closeIt, c.secrets()}, nil
}

// Deliver publishes one message. The receipt is "published to SUBJECT", and says if the stream
// already had the message.
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	return s.retry(ctx, d.Sink, func(ctx context.Context) (notification.Receipt, error) { return s.Lazy.Deliver(ctx, d) })
}

// DeliverCollection publishes the messages of all members, one after another, as [publisher.Sink.DeliverCollection]
// does. A stream drops those that it has already stored, so a repeat adds only what is missing.
func (s *Sink) DeliverCollection(ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
	return s.retry(ctx, c.Sink, func(ctx context.Context) (notification.Receipt, error) { return s.Lazy.DeliverCollection(ctx, c) })
}

// retry makes a call until its connection is not retired.
func (s *Sink) retry(ctx context.Context, sink string, deliver func(context.Context) (notification.Receipt, error)) (notification.Receipt, error) {
	for {
		receipt, err := s.call(ctx, sink, deliver)
		if !errors.Is(err, errRetired) {
			return receipt, s.secrets.Error(err)
		}
	}
}

// CheckHealth connects, waits for an answer of the server, and checks that the configured stream exists.
func (s *Sink) CheckHealth(ctx context.Context) error {
	for {
		if err := s.Lazy.CheckHealth(ctx); !errors.Is(err, errRetired) {
			return s.secrets.Error(err)
		}
	}
}

func (s *Sink) call(ctx context.Context, sink string, deliver func(context.Context) (notification.Receipt, error)) (notification.Receipt, error) {
	call := &call{prefix: s.prefix(sink)}
	receipt, err := deliver(context.WithValue(ctx, callKey{}, call))
	switch {
	case err == nil && call.duplicateOf != "":
		return notification.Receipt(fmt.Sprintf("%s: a duplicate, which stream %s already has", receipt, call.duplicateOf)), nil
	case !call.connected && errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, encoding.ErrRegistry):
		return "", sinks.Unavailable(fmt.Errorf("connect: %w", err))
	}
	return receipt, err
}

// prefix returns what stands before the notification's id in the id by which a stream recognizes duplicates. That is the
// same for each attempt, and differs between sinks, because several sinks may write to one stream.
func (s *Sink) prefix(sink string) string {
	prefix := ""
	for _, name := range slices.Compact([]string{s.name, sink}) {
		if name != "" {
			prefix += name + "/"
		}
	}
	return prefix
}

// Close closes the current connection, and ends a running attempt to connect.
func (s *Sink) Close(ctx context.Context) error {
	s.close()
	return s.Lazy.Close(ctx)
}

// call passes values between a delivery and the connection, because a publisher gets only a message
// and returns only an error.
type call struct {
	prefix      string // of the ids of messages
	connected   bool
	duplicateOf string // the stream that already had the message; "" if none
}

type callKey struct{}

func callOf(m *message.Message) *call {
	if c, ok := m.Context().Value(callKey{}).(*call); ok {
		return c
	}
	return new(call)
}
