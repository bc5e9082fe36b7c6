package main

import (
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"
)

// newSubscriber consumes one queue, to which its topic, a pattern of types, is bound.
//
// In a cluster "x-queue-type": "quorum" has the queue on several nodes. A queue keeps the
// order in which its messages came. So that consumers keep it too, one of them is active at
// a time, with one message in its hands.
func newSubscriber(url string) (message.Subscriber, error) {
	same := func(topic string) string { return topic }
	return amqp.NewSubscriber(amqp.Config{
		Connection: amqp.ConnectionConfig{AmqpURI: url},
		Marshaler:  amqp.DefaultMarshaler{},
		Exchange:   amqp.ExchangeConfig{GenerateName: amqp.GenerateExchangeNameConstant(exchange), Type: amqp091.ExchangeTopic, Durable: true},
		Queue: amqp.QueueConfig{
			GenerateName: amqp.GenerateQueueNameConstant("billing"),
			Durable:      true,
			Arguments:    amqp091.Table{"x-single-active-consumer": true},
		},
		QueueBind:       amqp.QueueBindConfig{GenerateRoutingKey: same},
		Consume:         amqp.ConsumeConfig{Qos: amqp.QosConfig{PrefetchCount: 1}},
		TopologyBuilder: &amqp.DefaultTopologyBuilder{},
	}, watermill.NopLogger{})
}
