package jsonlines

import (
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/envelope"
)

var _ sinks.Described = (*Config)(nil)

// Channel implements [sinks.Described].
func (c *Config) Channel() sinks.Channel {
	channel := sinks.Channel{
		Protocol: "file", Address: c.Path, ContentType: "application/jsonl", Body: envelope.Schema,
		Text: "A line of JSON for each notification, in the file of this path.",
	}
	if c.Path == "" || c.Path == Output {
		channel.Address, channel.Text = "", "A line of JSON for each notification, in the output of the forwarder."
	}
	return channel
}
