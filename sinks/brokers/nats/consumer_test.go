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

// declare makes the stream, which is no error if it is there with these settings. The sink
// waits until it is there.
func declare(js client.JetStreamContext) error {
	_, err := js.AddStream(&client.StreamConfig{
		Name:     "ORDERS",
		Subjects: []string{"orders.>"},
		Storage:  client.FileStorage,
		// The stream remembers ids for this long, in the server's memory. It should be longer than
		// a forwarder is ever away between a delivery and the checkpoint that records it.
		Duplicates: 10 * time.Minute,
		Discard:    client.DiscardNew, // a full stream refuses new messages and keeps old ones
		Replicas:   1,                 // 3 in a cluster
	})
	return err
}

// declareConsumer makes the place in the stream from which the program goes on after a restart.
// A consumer that the library declares while it subscribes is deleted when it unsubscribes.
func declareConsumer(js client.JetStreamContext) error {
	_, err := js.AddConsumer("ORDERS", &client.ConsumerConfig{
		Durable:        "billing",
		DeliverSubject: "deliver.billing",
		FilterSubject:  "orders.>",
		AckPolicy:      client.AckExplicitPolicy,
		AckWait:        5 * time.Second, // then a message that a consumer died with comes again
		MaxAckPending:  1,               // one at a time keeps the order, also of what comes again
	})
	return err
}

// newSubscriber consumes the stream, with Watermill. Closing it closes the connection.
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
