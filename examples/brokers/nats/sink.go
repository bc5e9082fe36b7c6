package main

import (
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers/nats"
)

// newSink publishes to the stream, to a subject made of the notification's type. In a
// configuration file it is
//
//	kind: nats
//	with: {servers: ["nats://…"], stream: SHOP, topic: "shop.{{.Type}}"}
func newSink(url string) (sinks.Sink, error) {
	c := nats.Config{Servers: []string{url}, Stream: stream, Topic: "shop.{{.Type}}"}
	c.SetDefaults()
	return nats.New(sinks.Instance{Name: "shop"}, c)
}
