package publisher

import "github.com/waybill-go/waybill/sinks"

// Channel returns the channel of a kind that publishes to a topic, for [sinks.Described].
func (c Config) Channel(protocol string, hosts ...string) sinks.Channel {
	channel := sinks.Channel{
		Protocol: protocol, Hosts: hosts, Address: sinks.Address(c.Topic),
		Text: "A message for each notification. One may come twice, with the same id.",
		Headers: []sinks.Header{
			{Name: MetadataType, Text: "Name of the notification's type."},
			{Name: MetadataVersion, Text: "Version of the payload."},
			{Name: MetadataOccurredOn, Text: "When it occurred: RFC 3339 in UTC, with microseconds."},
			{Name: MetadataKey, Text: "Ordering key.", Optional: true},
		},
	}
	if channel.Address == "" {
		channel.Text += " The address comes from each notification, by the template `" + c.Topic + "`."
	}
	return channel
}
