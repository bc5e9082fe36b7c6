// Package nats publishes notifications to NATS JetStream.
//
// A delivery counts as made when a stream has acknowledged the message: it is stored as its
// stream stores, in a file and on as many servers as the stream has replicas. Nats-Msg-Id has
// the sink's name and the notification's id, so within its duplicate window a stream drops
// what comes again from this sink, and the receipt says so.
// The stream is not made here: declare it with what the data are worth.
//
// The message is that of Watermill's NATS library, which can consume it with [Marshaler]:
// the metadata are headers, the payload is the data.
package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/publisher"
)

// Kind is the kind nats for the configuration file.
func Kind() sinks.Kind {
	return sinks.NewKind("nats", "Publishes each notification to a stream of NATS JetStream.",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) }, answers...)
}

// Sink publishes to streams. Its methods may be called in parallel; Close comes last.
type Sink struct {
	*publisher.Lazy
	name  string
	close context.CancelFunc // ends a call of connect
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
	open, closeIt := context.WithCancel(context.Background())
	lazy, err := publisher.NewLazy(func(ctx context.Context) (message.Publisher, error) {
		ctx, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		defer context.AfterFunc(open, cancel)()
		return connect(ctx, in, c)
	}, c.publishing())
	if err != nil {
		closeIt()
		return nil, err
	}
	return &Sink{lazy, in.Name, closeIt}, nil
}

// Deliver publishes one message. The receipt is "published to SUBJECT", and says so when the
// stream has the message already.
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	call := &call{id: s.messageID(d)}
	receipt, err := s.Lazy.Deliver(context.WithValue(ctx, callKey{}, call), d)
	switch {
	case err == nil && call.duplicateOf != "":
		return notification.Receipt(fmt.Sprintf("%s: a duplicate, which stream %s has already", receipt, call.duplicateOf)), nil
	case !call.connected && errors.Is(err, context.DeadlineExceeded):
		return "", sinks.Unavailable(fmt.Errorf("connect: %w", err))
	}
	return receipt, err
}

// messageID is what a stream tells messages apart by. It is the same for each attempt, and
// another one for each sink, since several may write to one stream.
func (s *Sink) messageID(d *notification.Delivery) string {
	parts := slices.Compact([]string{s.name, d.Sink, d.ID})
	if parts[0] == "" {
		parts = parts[1:]
	}
	return strings.Join(parts, "/")
}

// Close ends what is connecting, and closes what is connected.
func (s *Sink) Close(ctx context.Context) error {
	s.close()
	return s.Lazy.Close(ctx)
}

// call is a delivery's way to the connection and back: a publisher gets a message only, and
// returns an error only.
type call struct {
	id          string
	connected   bool
	duplicateOf string // the stream that had the message; "" if none had
}

type callKey struct{}

func callOf(m *message.Message) *call {
	if c, ok := m.Context().Value(callKey{}).(*call); ok {
		return c
	}
	return &call{id: m.UUID}
}
