// Package publisher makes a sink of any Watermill publisher, such as those for NATS,
// AMQP, Google Pub/Sub and Redis. The application makes the publisher:
//
//	sink, err := publisher.New(pub, publisher.Config{Topic: "orders"})
//
// To write a kind for the configuration file, use [NewLazy]. The module sinks/brokers
// has kinds for RabbitMQ, NATS JetStream and Redis Streams, and sinks/all/cmd/waybill is
// the command line with them.
//
// # The message
//
// The message's UUID is the notification's id, by which subscribers recognize duplicates. Its
// payload is the notification's payload, unchanged, or what [Config.Encoder] makes of it. Its metadata is the notification's
// metadata, and [MetadataType] and the other constants, which are also the names of the kafka
// sink's headers. Metadata of the notification with one of these names, or whose name begins
// with [MetadataPrefix], is sent with the prefix [MetadataPrefix].
//
// # Errors
//
// A publisher's error keeps the class that [sinks.Permanent] or a similar function gave
// it. [Config.Classify] can classify others. Remaining errors are unavailable if their
// type is that of a failed connection, and transient otherwise. A notification for which
// the topic's template fails is invalid.
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
	"github.com/waybill-go/waybill/sinks/internal/naming"
)

// Names of the metadata that every message has. A message without a key lacks MetadataKey.
const (
	MetadataType       = "type"        // the registered name, such as order.placed
	MetadataVersion    = "version"     // the payload's version, in decimal
	MetadataKey        = "key"         // the ordering key
	MetadataOccurredOn = "occurred-on" // in OccurredOnLayout, in UTC
	// MetadataPrefix is added to the name of metadata that is one of the names above or
	// begins with this prefix.
	MetadataPrefix = "metadata-"
)

// OccurredOnLayout is RFC 3339 with microseconds.
const OccurredOnLayout = "2006-01-02T15:04:05.000000Z07:00"

// Errors of New.
var (
	// ErrNoPublisher means that the publisher is nil.
	ErrNoPublisher = errors.New("publisher is nil")
	// ErrTopic means that the configured topic is empty or an invalid template. It is also
	// the error of a delivery for which the template fails or gives an empty topic.
	ErrTopic = errors.New("topic cannot be used")
)

// Config has the settings of a sink.
type Config struct {
	// Topic is the topic of the messages. Required. If it contains {{, it is a text/template
	// over the [notification.Envelope], such as
	//
	//	shop.{{.Type}}
	//	{{.Metadata.tenant}}.orders
	//	{{.Metadata.Get "correlation-id"}}
	//
	// If a notification lacks metadata that the template refers to by name, its delivery
	// is invalid; with Get, missing metadata is "".
	Topic string

	// Classify returns an error of the publisher with its class, made with
	// [sinks.Unavailable], [sinks.Permanent] or a similar function. If it returns nil or an
	// error without a class, the class is found as without Classify. It is not called for
	// errors that already have a class. It must be safe for concurrent use. Optional.
	//
	// Classify the library's errors of a lost connection as unavailable. Otherwise they are
	// transient, and use up attempts while the broker is down.
	Classify func(error) error

	// Encoder encodes payloads; nil if they are sent as they are. The sink closes it. Optional.
	Encoder Encoder
}

// Encoder encodes payloads. That of package sinks/encoding is one. Its methods must be safe for concurrent
// use.
type Encoder interface {
	// Encode returns what is sent to a topic instead of the payload. Its errors should have a class.
	Encode(ctx context.Context, topic string, e *notification.Envelope) ([]byte, error)
	// ContentType returns the media type of what Encode returns. It replaces that of the metadata.
	ContentType() string
	// CheckHealth is called by [Lazy.CheckHealth].
	CheckHealth(ctx context.Context) error
	Close()
}

// Validate returns the mistakes in the topic. They begin with the key topic, for the
// configuration of a kind.
func (c Config) Validate() error {
	if _, err := newTopic(c.Topic); err != nil {
		return fmt.Errorf("topic: %w", err)
	}
	return nil
}

// Sink publishes deliveries. Its methods are safe for concurrent use if the publisher's
// Publish is, as Watermill requires. Close must be the last call.
type Sink struct {
	publisher message.Publisher
	topic     naming.Name
	classify  func(error) error
	encoder   Encoder // nil if payloads are sent as they are
}

var (
	_ sinks.Sink      = (*Sink)(nil)
	_ sinks.Collector = (*Sink)(nil)
	_ sinks.Closer    = (*Sink)(nil)
)

// New returns a sink that owns p and closes it. p.Publish must return only after the
// message is stored or has failed: a publisher that only buffers messages loses some that
// were reported as delivered.
//
// It fails with ErrNoPublisher or ErrTopic. It tries the topic's template on an envelope
// without metadata, so that a wrong name is found here and not by every delivery.
func New(p message.Publisher, c Config) (*Sink, error) {
	if p == nil {
		return nil, ErrNoPublisher
	}
	t, err := newTopic(c.Topic)
	if err != nil {
		return nil, err
	}
	return &Sink{publisher: p, topic: t, classify: c.Classify, encoder: c.Encoder}, nil
}

// Deliver publishes one message, and returns the receipt "published to orders". The
// message carries ctx, for publishers that use it.
//
// Watermill's Publish has no context parameter. Deliver checks ctx first, and then waits
// for Publish: if it returned earlier, the message could still be published, after newer
// ones of its key. So the publisher's timeouts should be shorter than the sink's. A
// failure after ctx has ended is reported as the context's error.
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	topic, err := s.topic(d.Envelope)
	if err != nil {
		return "", sinks.Invalid(err)
	}
	return s.publish(ctx, topic, d)
}

// CollectionSize returns 0: a collection can have any number of members.
func (s *Sink) CollectionSize() int { return 0 }

// DeliverCollection publishes the messages of all members in one call of the publisher, in order. They
// are those of single notifications, and must have the same topic; otherwise the collection is invalid,
// with a [*sinks.DifferError]. Receipt and errors are those of [Sink.Deliver]. If the call fails, some
// messages may have been published, and come again with all others.
func (s *Sink) DeliverCollection(ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
	topic, err := sinks.Common(c, "topic", func(d *notification.Delivery) (string, error) { return s.topic(d.Envelope) })
	if err != nil {
		return "", err
	}
	return s.publish(ctx, topic, c.Members...)
}

// publish publishes to a topic, unless ctx has ended.
func (s *Sink) publish(ctx context.Context, topic string, deliveries ...*notification.Delivery) (notification.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	messages := make([]*message.Message, len(deliveries))
	for i, d := range deliveries {
		m, err := s.newMessage(ctx, topic, d.Envelope)
		switch {
		case err != nil && len(deliveries) > 1:
			return "", fmt.Errorf("%s: %w", d.ID, err)
		case err != nil:
			return "", err
		}
		messages[i] = m
	}
	err := s.publisher.Publish(topic, messages...)
	switch {
	case err == nil:
		return notification.Receipt("published to " + topic), nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	}
	return "", s.failed(topic, err)
}

// Close closes the publisher, and the encoder. If ctx ends first, it returns the context's error, and the
// publisher closes in the background.
func (s *Sink) Close(ctx context.Context) error {
	closed := make(chan error, 1)
	go func() {
		if s.encoder != nil {
			s.encoder.Close()
		}
		closed <- s.publisher.Close()
	}()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the publisher is still closing: %w", ctx.Err())
	}
}

// newMessage copies payload and metadata, because a publisher inside the process may pass the
// message to its subscribers, which use it after Deliver has returned.
func (s *Sink) newMessage(ctx context.Context, topic string, e *notification.Envelope) (*message.Message, error) {
	m := message.NewMessage(e.ID, nil)
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
	if s.encoder == nil {
		m.Payload = bytes.Clone(e.Payload)
		return m, nil
	}
	var err error
	m.Payload, err = s.encoder.Encode(ctx, topic, e)
	m.Metadata[notification.MetadataContentType] = s.encoder.ContentType()
	return m, err
}

func metadataName(name string) string {
	switch name {
	case MetadataType, MetadataVersion, MetadataKey, MetadataOccurredOn:
		return MetadataPrefix + name
	}
	if strings.HasPrefix(name, MetadataPrefix) { // otherwise it could be the same as a renamed one
		return MetadataPrefix + name
	}
	return name
}
