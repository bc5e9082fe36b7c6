package pubsub

import (
	"cmp"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/body"
	"github.com/waybill-go/waybill/sinks/internal/cloudevents"
	"github.com/waybill-go/waybill/sinks/internal/naming"
)

var _ sinks.Described = (*Config)(nil)

// defaultHost is the host of the service, which routes requests to the nearest region.
const defaultHost = "pubsub.googleapis.com"

// Channel implements [sinks.Described].
func (c *Config) Channel() sinks.Channel {
	address, _, _ := c.address()
	its := sinks.Channel{
		Protocol: "googlepubsub",
		Hosts:    []string{cmp.Or(address, defaultHost)},
		Address:  sinks.Address(c.Topic),
		Text:     "A message for each notification. A message may come twice, with the same attribute id.",
		Headers:  []sinks.Header{{Name: attributeContentType, Text: "Media type of the body.", Optional: true}},
	}
	if naming.IsTemplate(c.Topic) && its.Address == "" {
		its.Text += " The topic comes from each notification, by the template `" + c.Topic + "`."
	}
	binding := map[string]any{"bindingVersion": "0.2.0"}
	if !c.Unordered {
		its.Text += " Subscriptions with message ordering get messages with the same ordering key, which is that of the notification, in order."
		binding["orderingKey"] = "{" + body.AttributeKey + "}"
	}
	its.MessageBindings = map[string]any{"googlepubsub": binding}
	described := c.Body
	if c.ContentMode == ModeBinary {
		its.Text += " Attributes are those of CloudEvents 1.0 in binary mode."
		its.Headers = append(its.Headers, cloudevents.Headers(eventPrefix)...)
		described.Format = body.FormatPayload
	}
	described.Describe(&its)
	c.Large.Describe(&its)
	c.Encoding.Describe(&its)
	return its
}
