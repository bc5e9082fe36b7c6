package kafka

import (
	"strings"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/cloudevents"
	"github.com/waybill-go/waybill/sinks/internal/naming"
)

var _ sinks.Described = (*Config)(nil)

// Channel implements [sinks.Described].
func (c *Config) Channel() sinks.Channel {
	channel := sinks.Channel{
		Protocol: "kafka",
		Hosts:    c.Brokers,
		Address:  sinks.Address(c.Topic),
		Text:     "A record for each notification. Its key is the ordering key, so records with the same key are in one partition, in order. A record may come twice, with the same id.",
		Headers: []sinks.Header{
			{Name: HeaderID, Text: "Id of the notification."},
			{Name: HeaderType, Text: "Name of its type."},
			{Name: HeaderVersion, Text: "Version of the payload."},
			{Name: HeaderOccurredOn, Text: "When it occurred: RFC 3339 in UTC, with microseconds."},
		},
		MessageBindings: binding(map[string]any{
			"key": map[string]any{"type": "string", "description": "The ordering key. Records of notifications without one have no key."},
		}),
	}
	if c.ExactlyOnce {
		channel.Text += " Consumers with `isolation.level: read_committed` get each record once."
	}
	switch {
	case channel.Address == "":
		channel.Text += " The topic comes from each notification, by the template `" + c.Topic + "`."
	case !naming.IsTemplate(c.Topic):
		channel.ChannelBindings = binding(map[string]any{"topic": c.Topic})
	}
	if c.Format == FormatBinary {
		channel.Text += " Headers are those of CloudEvents 1.0 in binary mode."
		channel.Headers = append(cloudevents.Headers(eventHeaderPrefix), sinks.Header{Name: headerContentType, Text: "Content type of the payload."})
	}
	if len(c.Tombstones) > 0 {
		channel.Text += " The value is null for " + strings.Join(c.Tombstones, ", ") + ", which deletes the key from a compacted topic."
	}
	c.Encoding.Describe(&channel)
	c.Large.Describe(&channel)
	return channel
}

// binding returns a binding of AsyncAPI.
func binding(its map[string]any) map[string]any {
	its["bindingVersion"] = "0.5.0"
	return map[string]any{"kafka": its}
}
