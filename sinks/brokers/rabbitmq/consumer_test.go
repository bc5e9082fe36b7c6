package rabbitmq_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/publisher"
)

// newSubscriber consumes one queue with Watermill. The topic is a pattern of types that binds the
// queue to the exchange.
//
// A queue keeps the order of its messages. Consumers keep it too if only one of them is active and it
// processes one message at a time. In a cluster, "x-queue-type": "quorum" stores the queue on several
// nodes.
func newSubscriber(url string) (message.Subscriber, error) {
	same := func(topic string) string { return topic }
	return wmamqp.NewSubscriber(wmamqp.Config{
		Connection: wmamqp.ConnectionConfig{AmqpURI: url},
		Marshaler:  wmamqp.DefaultMarshaler{},
		Exchange:   wmamqp.ExchangeConfig{GenerateName: wmamqp.GenerateExchangeNameConstant("shop"), Type: amqp.ExchangeTopic, Durable: true},
		Queue: wmamqp.QueueConfig{
			GenerateName: wmamqp.GenerateQueueNameConstant("billing"),
			Durable:      true,
			Arguments:    amqp.Table{"x-single-active-consumer": true},
		},
		QueueBind:       wmamqp.QueueBindConfig{GenerateRoutingKey: same},
		Consume:         wmamqp.ConsumeConfig{Qos: wmamqp.QosConfig{PrefetchCount: 1}},
		TopologyBuilder: &wmamqp.DefaultTopologyBuilder{},
	}, watermill.NopLogger{})
}

func (b broker) testConsumer(t *testing.T) {
	subscriber, err := newSubscriber(b.url)
	require.NoError(t, err)
	defer func() { require.NoError(t, subscriber.Close()) }()
	messages, err := subscriber.Subscribe(t.Context(), "order.*")
	require.NoError(t, err)
	sink := b.sink(t, "exchange: shop\nexchange_type: topic")
	for _, typ := range []string{"order.placed", "order.paid"} {
		_, err := sink.Deliver(t.Context(), &notification.Delivery{Envelope: &notification.Envelope{ID: "o-17-" + typ, Type: typ, Key: "o-17", Payload: []byte(`{}`)}})
		require.NoError(t, err)
	}
	for _, typ := range []string{"order.placed", "order.paid"} {
		m := <-messages
		require.Equal(t, "o-17-"+typ, m.UUID)
		require.Equal(t, typ, m.Metadata.Get(publisher.MetadataType))
		m.Ack()
	}
}
