package rabbitmq

import (
	"strings"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/brokers"
)

// consistentHash is an exchange type of a plugin of RabbitMQ.
const consistentHash = "x-consistent-hash"

var _ sinks.Described = (*Config)(nil)

// Channel implements [sinks.Described].
func (c *Config) Channel() sinks.Channel {
	its := c.publishing().Channel("amqp", brokers.Hosts(c.URL)...)
	if strings.HasPrefix(c.URL, "amqps:") {
		its.Protocol = "amqps"
	}
	its.Text += " The address is the routing key, which in the default exchange is the name of a queue."
	its.Headers = append([]sinks.Header{{Name: wmamqp.DefaultMessageUUIDHeaderKey, Text: "Id of the notification, also the property message-id."}}, its.Headers...)
	exchange := map[string]any{"name": c.Exchange}
	switch {
	case c.Exchange == "":
		exchange["type"] = "default"
	case c.ExchangeType != "" && c.ExchangeType != consistentHash: // which AsyncAPI does not know
		exchange["type"] = c.ExchangeType
	}
	its.ChannelBindings = map[string]any{"amqp": map[string]any{"is": "routingKey", "exchange": exchange, "bindingVersion": "0.3.0"}}
	c.Encoding.Describe(&its)
	return its
}
