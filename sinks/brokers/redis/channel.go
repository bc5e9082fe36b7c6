package redis

import (
	"strings"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers"
)

var _ sinks.Described = (*Config)(nil)

// Channel implements [sinks.Described].
func (c *Config) Channel() sinks.Channel {
	channel := c.publishing().Channel("redis", brokers.Hosts(c.URL)...)
	if strings.HasPrefix(c.URL, "rediss:") {
		channel.Protocol = "rediss"
	}
	channel.Text += " The address is the key of a stream. The field " + FieldPayload + " of an entry has the payload, and the others are headers."
	channel.Headers = append([]sinks.Header{{Name: FieldID, Text: "Id of the notification."}}, channel.Headers...)
	c.Encoding.Describe(&channel)
	return channel
}
