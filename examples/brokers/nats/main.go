// Nats carries notifications to NATS JetStream. A shop stores orders, and what
// happens to them, in one transaction; a forwarder publishes it to a stream that
// drops repetitions by the notification's id, and a consumer reads it. While the
// broker is stopped the shop goes on selling: what happens waits in the outbox.
//
//	cd examples/brokers && go run ./nats
//
// It uses the broker of -url or $NATS_URL, or else starts one of its own, for which
// the Debian package nats-server must be installed. It ends with code 1 if something
// is missing or in another order, and with 77 if there is no broker.
package main

import (
	"github.com/waybill-go/waybill/examples/brokers/internal/shop"
	"github.com/waybill-go/waybill/sinks/brokers/brokertest"
)

func main() { shop.Main(jetStream) }

var jetStream = shop.Broker{
	Name: "nats", Variable: "NATS_URL", Start: brokertest.StartNATS,
	Sink: newSink, Subscriber: newSubscriber, Topic: "shop.order.*",
}
