package main

import (
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers/rabbitmq"
)

const exchange = "shop"

// newSink publishes to the exchange, with the notification's type as routing key. In a
// configuration file it is
//
//	kind: rabbitmq
//	with: {url: "amqp://…", exchange: shop, exchange_type: topic, topic: "{{.Type}}"}
func newSink(url string) (sinks.Sink, error) {
	c := rabbitmq.Config{URL: url, Exchange: exchange, ExchangeType: "topic", Topic: "{{.Type}}"}
	c.SetDefaults()
	return rabbitmq.New(sinks.Instance{Name: "shop"}, c)
}
