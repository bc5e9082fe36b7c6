package nats_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	client "github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/brokers/nats"
	"github.com/waybill-go/waybill/sinks/publisher"
)

// declare creates the stream. It succeeds if the stream exists with these settings. The sink is
// unavailable until the stream exists.
func declare(js client.JetStreamContext) error {
	_, err := js.AddStream(&client.StreamConfig{
		Name:     "ORDERS",
		Subjects: []string{"orders.>"},
		Storage:  client.FileStorage,
		// How long the server keeps the stream's ids in memory. It should be longer than any outage
		// of a forwarder between a delivery and its checkpoint.
		Duplicates: 10 * time.Minute,
		Discard:    client.DiscardNew, // a full stream refuses new messages and keeps old ones
		Replicas:   1,                 // 3 in a cluster
	})
	return err
}

// declareConsumer creates a durable consumer, so that the program continues at its position after a
// restart. A consumer that the library creates when it subscribes is deleted when it unsubscribes.
func declareConsumer(js client.JetStreamContext) error {
	_, err := js.AddConsumer("ORDERS", &client.ConsumerConfig{
		Durable:        "billing",
		DeliverSubject: "deliver.billing",
		FilterSubject:  "orders.>",
		AckPolicy:      client.AckExplicitPolicy,
		AckWait:        5 * time.Second, // if the consumer crashes, a message comes again after this time
		MaxAckPending:  1,               // one message at a time keeps the order, even if messages come again
	})
	return err
}

// newSubscriber consumes the stream with Watermill. Close closes its connection.
func newSubscriber(url string) (message.Subscriber, error) {
	connection, err := client.Connect(url, client.MaxReconnects(-1), client.ReconnectWait(250*time.Millisecond))
	if err != nil {
		return nil, err
	}
	js, err := connection.JetStream()
	if err == nil {
		err = errors.Join(declare(js), declareConsumer(js))
	}
	if err != nil {
		connection.Close()
		return nil, err
	}
	return wmnats.NewSubscriberWithNatsConn(connection, wmnats.SubscriberSubscriptionConfig{
		Unmarshaler: nats.Marshaler{},
		JetStream:   wmnats.JetStreamConfig{DurablePrefix: "billing"},
	}, watermill.NopLogger{})
}

func (b broker) testConsumer(t *testing.T) {
	subscriber, err := newSubscriber(b.url)
	require.NoError(t, err)
	defer func() { require.NoError(t, subscriber.Close()) }()
	messages, err := subscriber.Subscribe(t.Context(), "orders.>")
	require.NoError(t, err)
	sink := b.sink(t, "stream: ORDERS\ntopic: 'orders.{{.Type}}'")
	for _, typ := range []string{"placed", "paid"} {
		_, err := sink.Deliver(t.Context(), &notification.Delivery{Envelope: &notification.Envelope{ID: "o-17-" + typ, Type: typ, Key: "o-17", Payload: []byte(`{}`)}})
		require.NoError(t, err)
	}
	for _, typ := range []string{"placed", "paid"} {
		m := <-messages
		require.Equal(t, "o-17-"+typ, m.UUID)
		require.Equal(t, typ, m.Metadata.Get(publisher.MetadataType))
		m.Ack()
	}
}
