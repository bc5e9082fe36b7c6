package email

import (
	"github.com/waybill-go/waybill/sinks"
)

var _ sinks.Described = (*Config)(nil)

// Channel implements [sinks.Described].
func (c *Config) Channel() sinks.Channel {
	return sinks.Channel{
		Protocol: "smtp",
		Text:     "A mail for each notification, to the recipients that the templates of its type name.",
		Body:     sinks.NoSchema,
	}
}
