package webhooks

import (
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

var _ sinks.Described = (*Config)(nil)

// Channel implements [sinks.Described].
func (c *Config) Channel() sinks.Channel {
	return httpsink.Signed(sinks.Channel{
		Protocol:    "https",
		Text:        "A request for each notification to each endpoint that a customer has registered for its type. The addresses are the customers' own. Any 2xx accepts it. Each endpoint has its own secret. A request may come twice, with the same id.",
		ContentType: "application/json",
		Body: func(payload map[string]any) map[string]any {
			properties := map[string]any{
				"type":      map[string]any{"type": "string", "description": "Name of the notification's type."},
				"timestamp": map[string]any{"type": "string", "format": "date-time", "description": "When it occurred."},
			}
			if payload != nil {
				properties["data"] = payload
			} else {
				properties["data_base64"] = map[string]any{"type": "string", "contentEncoding": "base64"}
			}
			return map[string]any{"type": "object", "properties": properties, "required": []string{"type", "timestamp"}}
		},
		OperationBindings: map[string]any{"http": map[string]any{"method": "POST", "bindingVersion": "0.3.0"}},
	})
}
