package main

import (
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"
)

// newSubscriber consumes one queue, to which its topic, a pattern of types, is bound.
//
// In a cluster "x-queue-type": "quorum" has the queue on several nodes. A queue keeps the order in which its messages came. So that consumers keep it too,
// one of them is active at a time, with one message in its hands.
func newSubscriber(url string) (message.Subscriber, error) {
	config := newConfig(url)
	config.Queue = amqp.QueueConfig{
		GenerateName: amqp.GenerateQueueNameConstant("billing"),
		Durable:      true,
		Arguments:    amqp091.Table{"x-single-active-consumer": true},
	}
	config.QueueBind.GenerateRoutingKey = func(topic string) string { return topic }
	config.Consume.Qos.PrefetchCount = 1
	return amqp.NewSubscriber(config, watermill.NopLogger{})
}
