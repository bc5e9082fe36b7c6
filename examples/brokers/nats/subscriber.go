package main

import (
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	waybillnats "github.com/waybill-go/waybill/sinks/brokers/nats"
)

const consumer = "billing"

// newSubscriber consumes the stream from where this consumer stopped the last time.
// It is declared here: one that the client makes while subscribing is deleted when it
// unsubscribes.
func newSubscriber(url string) (message.Subscriber, error) {
	connection, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(250*time.Millisecond))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(declare(connection), declareConsumer(connection)); err != nil {
		connection.Close()
		return nil, err
	}
	return wmnats.NewSubscriberWithNatsConn(connection, wmnats.SubscriberSubscriptionConfig{
		Unmarshaler: waybillnats.Marshaler{},
		JetStream:   wmnats.JetStreamConfig{DurablePrefix: consumer},
	}, watermill.NopLogger{})
}

func declareConsumer(connection *nats.Conn) error {
	js, err := connection.JetStream()
	if err != nil {
		return err
	}
	_, err = js.AddConsumer(stream, &nats.ConsumerConfig{
		Durable:        consumer,
		DeliverSubject: "deliver." + consumer,
		FilterSubject:  "shop.order.*",
		AckPolicy:      nats.AckExplicitPolicy,
		AckWait:        5 * time.Second, // then what a consumer died with comes again
		MaxAckPending:  1,               // one at a time: what comes again does not come late
	})
	return err
}
