// Rabbitmq carries notifications to RabbitMQ. A shop stores orders, and what happens
// to them, in one transaction; a forwarder publishes it to a durable exchange, and a
// consumer reads it from a durable queue. While the broker is stopped the shop goes
// on selling: what happens waits in the outbox.
//
//	cd examples/brokers && go run ./rabbitmq
//
// It uses the broker of -url or $RABBITMQ_URL, or else starts one of its own, for
// which the Debian package rabbitmq-server must be installed. It ends with code 1 if
// something is missing or in another order, and with 77 if there is no broker.
package main

import (
	"github.com/waybill-go/waybill/examples/brokers/internal/shop"
	"github.com/waybill-go/waybill/sinks/brokers/brokertest"
)

func main() { shop.Main(rabbitmqBroker) }

var rabbitmqBroker = shop.Broker{
	Name: "rabbitmq", Variable: "RABBITMQ_URL", Start: brokertest.StartRabbitMQ,
	Sink: newSink, Subscriber: newSubscriber, Topic: "order.*",
}
