package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/publisher"
)

const (
	exchange = "shop"
	// unrouted gets what no queue is bound for, which RabbitMQ would else confirm and
	// drop. The flag mandatory does not help: watermill-amqp does not listen for what
	// is returned.
	unrouted = "shop.unrouted"
)

// confirmWithin is how long the broker may take to confirm a message; less than the
// sink's timeout.
const confirmWithin = 5 * time.Second

// maxHeaders is what a message's headers may have in bytes: they must fit into a
// frame of the default size, 128 KiB, with the properties. RabbitMQ closes the
// connection over larger ones.
const maxHeaders = 120 << 10

// newSink publishes to the exchange, with the notification's type as routing key.
func newSink(url string) (sinks.Sink, error) {
	return publisher.New(
		publisher.Lazy(func() (message.Publisher, error) { return connect(url) }),
		publisher.Config{Topic: "{{.Type}}"},
	)
}

// connect declares what must be there before anything is published, and makes the
// publisher.
func connect(url string) (message.Publisher, error) {
	p, err := amqp.NewPublisher(newConfig(url), watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	if err := declareUnrouted(p.Connection()); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return classed{p}, nil
}

// newConfig is what publisher and consumer have in common, and the publisher's part.
func newConfig(url string) amqp.Config {
	topic := func(topic string) string { return topic }
	return amqp.Config{
		Connection: amqp.ConnectionConfig{
			AmqpURI: url,
			AmqpConfig: &amqp091.Config{
				Heartbeat:  10 * time.Second, // a silent broker is gone after twice that
				Locale:     "en_US",
				Properties: amqp091.Table{"connection_name": "waybill example"},
			},
			Reconnect: &amqp.ReconnectConfig{
				BackoffInitialInterval: 100 * time.Millisecond, BackoffMultiplier: 1.5,
				BackoffRandomizationFactor: 0.5, BackoffMaxInterval: 2 * time.Second, // default 60 s
			},
		},
		Marshaler: amqp.DefaultMarshaler{PostprocessPublishing: setProperties}, // persistent messages
		Exchange: amqp.ExchangeConfig{
			GenerateName: amqp.GenerateExchangeNameConstant(exchange),
			Type:         amqp091.ExchangeTopic,
			Durable:      true,
			Arguments:    amqp091.Table{"alternate-exchange": unrouted},
		},
		Publish: amqp.PublishConfig{
			GenerateRoutingKey: topic,
			ConfirmDelivery:    true, // Publish returns when the broker has stored the message
			// No ChannelPoolSize: a pool loses a channel each time that it finds the
			// broker gone, and without any left Publish never returns.
		},
		TopologyBuilder: &amqp.DefaultTopologyBuilder{},
	}
}

// setProperties says in AMQP's own words what the headers say too.
func setProperties(m amqp091.Publishing) amqp091.Publishing {
	text := func(header string) string {
		text, _ := m.Headers[header].(string)
		return text
	}
	m.MessageId = text(amqp.DefaultMessageUUIDHeaderKey)
	m.Type = text(publisher.MetadataType)
	m.ContentType = text("content-type")
	m.Timestamp, _ = time.Parse(publisher.OccurredOnLayout, text(publisher.MetadataOccurredOn))
	return m
}

func declareUnrouted(connection *amqp091.Connection) error {
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	defer channel.Close()
	if err := channel.ExchangeDeclare(unrouted, amqp091.ExchangeFanout, true, false, false, false, nil); err != nil {
		return err
	}
	if _, err := channel.QueueDeclare(unrouted, true, false, false, false, nil); err != nil {
		return err
	}
	return channel.QueueBind(unrouted, "", unrouted, false, nil)
}

// classed gives errors the classes that the engine acts on.
type classed struct{ *amqp.Publisher }

// Publish fails as unavailable without a connection, in whatever words, since then
// nothing is wrong with the message.
//
// watermill-amqp waits for the broker's confirmation without a limit. Where none comes
// the connection is given up, which ends the wait; the library makes another one.
func (p classed) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		if err := checkHeaders(m); err != nil {
			return sinks.Permanent(err)
		}
	}
	connection := p.Connection()
	giveUp := time.AfterFunc(confirmWithin, func() {
		_ = connection.CloseDeadline(time.Now().Add(time.Second)) // it is closed after that, whatever it says
	})
	defer giveUp.Stop()
	err := p.Publisher.Publish(topic, messages...)
	// Meanwhile there may be a new one.
	if err != nil && (connection.IsClosed() || p.Connection().IsClosed()) {
		return sinks.Unavailable(err)
	}
	return err
}

func checkHeaders(m *message.Message) error {
	size := len(m.UUID)
	for name, text := range m.Metadata {
		if len(name) > 255 {
			return fmt.Errorf("metadata %.40q… has a name of %d bytes, AMQP's limit is 255", name, len(name))
		}
		size += len(name) + len(text) + 6 // length, kind, length
	}
	if size > maxHeaders {
		return fmt.Errorf("the metadata have %d bytes, the limit is %d", size, maxHeaders)
	}
	return nil
}
