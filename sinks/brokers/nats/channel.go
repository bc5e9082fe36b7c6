package nats

import (
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers"
)

var _ sinks.Described = (*Config)(nil)

// Channel implements [sinks.Described].
func (c *Config) Channel() sinks.Channel {
	channel := c.publishing().Channel("nats", brokers.Hosts(c.Servers...)...)
	channel.Text += " Messages are in a stream of JetStream, by the subject of this address."
	channel.Headers = append([]sinks.Header{{Name: wmnats.WatermillUUIDHdr, Text: "Id of the notification."}}, channel.Headers...)
	c.Encoding.Describe(&channel)
	return channel
}
