// Package publisher makes a sink of any Watermill publisher: NATS, AMQP, Google
// Pub/Sub, Redis and whatever else Watermill's ecosystem has. The application makes
// the publisher:
//
//	sink, err := publisher.New(pub, publisher.Config{Topic: "orders"})
//
// A kind for the configuration file makes it of its settings, with [NewLazy]; the module
// sinks/brokers has kinds for RabbitMQ, NATS JetStream and Redis Streams.
//
// # The message
//
// The message's UUID is the notification's id, what a subscriber deduplicates
// by; its payload is the payload, byte for byte. Its metadata are the
// notification's own, and those of [MetadataType] and its neighbours. Metadata
// of the notification that is named like one of these, or begins with [MetadataPrefix],
// is sent as [MetadataPrefix] and its name. The names are those of the kafka sink's
// headers.
//
// # Errors
//
// An error of the publisher has the class with which it was made, by
// [sinks.Permanent] and its neighbours. One without a class gets that of
// [Config.Classify]; else it is unavailable if it is of the connection, by type, and
// transient if not. A topic that cannot be made of a notification is permanent.
package publisher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// Names of the metadata that every message has; the key's only where there is
// one.
const (
	MetadataType       = "type"        // the registered name, such as order.placed
	MetadataVersion    = "version"     // the payload's version, in decimal
	MetadataKey        = "key"         // the ordering key
	MetadataOccurredOn = "occurred-on" // in OccurredOnLayout, in UTC
	// MetadataPrefix stands before the name of metadata that is named like one of
	// the above, or begins with it.
	MetadataPrefix = "metadata-"
)

// OccurredOnLayout is RFC 3339 with microseconds.
const OccurredOnLayout = "2006-01-02T15:04:05.000000Z07:00"

// Errors of New.
var (
	// ErrNoPublisher: the publisher is nil.
	ErrNoPublisher = errors.New("publisher is nil")
	// ErrTopic: the configured topic is empty or not a template. Deliveries whose
	// topic comes out empty fail with it too.
	ErrTopic = errors.New("topic cannot be used")
)

// Config is how deliveries are published.
type Config struct {
	// Topic is where messages go. Required. With {{ in it, it is a text/template
	// over the [notification.Envelope], such as
	//
	//	shop.{{.Type}}
	//	{{.Metadata.tenant}}.orders
	//	{{.Metadata.Get "correlation-id"}}
	//
	// With a field's name, metadata that a notification lacks makes its delivery
	// permanently undeliverable; Get makes it "".
	Topic string

	// Classify gives an error of the publisher its class: it returns the error made with
	// [sinks.Unavailable], [sinks.Permanent] or their neighbours. Of what it returns
	// without a class, nil too, the class is found as if there were no Classify. Optional; it is
	// not asked for errors that have a class, and may be called in parallel.
	//
	// Libraries have errors of their own for a lost connection. These belong here: else
	// they are transient, and a broker's stop spends attempts.
	Classify func(error) error
}

// Validate says what is wrong with the topic, under that name, for the configuration of a
// kind.
func (c Config) Validate() error {
	if _, err := newTopic(c.Topic); err != nil {
		return fmt.Errorf("topic: %w", err)
	}
	return nil
}

// Sink publishes deliveries. Its methods may be called in parallel, as far as
// the publisher's Publish may, which Watermill asks of every publisher; Close
// comes last.
type Sink struct {
	publisher message.Publisher
	topic     topic
	classify  func(error) error
}

var (
	_ sinks.Sink   = (*Sink)(nil)
	_ sinks.Closer = (*Sink)(nil)
)

// New returns a sink that owns p: it closes it. p.Publish must return only
// when the message is stored, or will not be: publishers that merely put it in a
// buffer lose messages that were reported as delivered.
//
// It fails with ErrNoPublisher or ErrTopic. It tries the topic's template once,
// on an envelope without metadata, so that a wrong name is found here and not by
// every delivery.
func New(p message.Publisher, c Config) (*Sink, error) {
	if p == nil {
		return nil, ErrNoPublisher
	}
	t, err := newTopic(c.Topic)
	if err != nil {
		return nil, err
	}
	return &Sink{publisher: p, topic: t, classify: c.Classify}, nil
}

// Deliver publishes one message and returns "published to orders". The message
// carries ctx, for publishers that look at it.
//
// Watermill's Publish takes no context of its own. Deliver looks at ctx before,
// and then waits for the outcome: leaving earlier would leave a message behind
// that may still be published, after newer ones of its key. How long that takes
// is the publisher's timeouts to say; they should be shorter than the sink's. A
// failure after ctx ended is reported as the context's error, a success as the
// success that it is.
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	topic, err := s.topic(d.Envelope)
	if err != nil {
		return "", sinks.Permanent(err)
	}
	err = s.publisher.Publish(topic, newMessage(ctx, d.Envelope))
	switch {
	case err == nil:
		return notification.Receipt("published to " + topic), nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	}
	return "", s.failed(topic, err)
}

// Close closes the publisher. When ctx ends first it returns the context's
// error, and the publisher goes on closing by itself.
func (s *Sink) Close(ctx context.Context) error {
	closed := make(chan error, 1)
	go func() { closed <- s.publisher.Close() }()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the publisher is still closing: %w", ctx.Err())
	}
}

// newMessage copies what it takes: a publisher inside the process may hand the
// message itself to its subscribers, who have it for longer than Deliver.
func newMessage(ctx context.Context, e *notification.Envelope) *message.Message {
	m := message.NewMessage(e.ID, bytes.Clone(e.Payload))
	for name, text := range e.Metadata {
		m.Metadata[metadataName(name)] = text
	}
	m.Metadata[MetadataType] = e.Type
	m.Metadata[MetadataVersion] = strconv.Itoa(e.Version)
	m.Metadata[MetadataOccurredOn] = e.OccurredOn.In(time.UTC).Format(OccurredOnLayout)
	if e.Key != "" {
		m.Metadata[MetadataKey] = e.Key
	}
	m.SetContext(ctx)
	return m
}

func metadataName(name string) string {
	switch name {
	case MetadataType, MetadataVersion, MetadataKey, MetadataOccurredOn:
		return MetadataPrefix + name
	}
	if strings.HasPrefix(name, MetadataPrefix) { // or it could be taken for one of these
		return MetadataPrefix + name
	}
	return name
}
