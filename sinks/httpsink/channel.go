package httpsink

import (
	"strings"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
	"github.com/waybill-go/waybill/sinks/internal/cloudevents"
	"github.com/waybill-go/waybill/sinks/internal/envelope"
)

// Signed adds to a channel that its requests are signed as Standard Webhooks.
func Signed(channel sinks.Channel) sinks.Channel {
	channel.Headers = append(channel.Headers,
		sinks.Header{Name: webhook.HeaderWebhookID, Text: "Id of the delivery, the same on every attempt."},
		sinks.Header{Name: webhook.HeaderWebhookTimestamp, Text: "Time of the attempt, in Unix seconds."},
		sinks.Header{Name: webhook.HeaderWebhookSignature, Text: "Signatures of `id.timestamp.body`, separated by spaces: `v1,` and HMAC-SHA256, or `v1a,` and ed25519, in base64."})
	channel.Verify = "Requests are signed as Standard Webhooks (https://www.standardwebhooks.com). Verify the headers `" +
		webhook.HeaderWebhookID + "`, `" + webhook.HeaderWebhookTimestamp + "` and `" + webhook.HeaderWebhookSignature +
		"` over the unchanged body with a library of that standard and your secret, and refuse old timestamps. Signatures do not cover other headers."
	return channel
}

var _ sinks.Described = (*Config)(nil)

// Channel implements [sinks.Described]. It has no path, which may contain a secret.
func (c *Config) Channel() sinks.Channel {
	filled := *c
	filled.SetDefaults()
	channel := sinks.Channel{
		Protocol: "https",
		Text:     "A request for each notification, to an address that its receiver has given. Any 2xx accepts it. A request may come twice, with the same id.",
		Headers:  []sinks.Header{{Name: webhook.HeaderIdempotencyKey, Text: "Id of the notification, the same on every attempt."}},
		Verify:   "Requests are not signed.",
		OperationBindings: map[string]any{
			"http": map[string]any{"method": filled.Method, "bindingVersion": "0.3.0"},
		},
	}
	if d, _, err := newDestination(c.Method, c.URL); err == nil && d.fixed.url != nil {
		channel.Protocol, channel.Hosts = d.fixed.url.Scheme, []string{d.fixed.url.Host}
	} else if strings.HasPrefix(c.URL, "http:") {
		channel.Protocol = "http"
	}
	describeFormat(&channel, filled.Format)
	if c.Secret != "" || len(c.Secrets) > 0 {
		return Signed(channel)
	}
	return channel
}

// describeFormat adds the headers and the body of a format.
func describeFormat(channel *sinks.Channel, format string) {
	add := func(headers ...sinks.Header) { channel.Headers = append(headers, channel.Headers...) }
	attempt := sinks.Header{Name: webhook.HeaderAttempt, Text: "Number of the attempt, from 1."}
	switch format {
	case FormatEnvelope:
		channel.ContentType, channel.Body = defaultContentType, envelope.Schema
		add(attempt)
	case FormatStructured:
		channel.ContentType, channel.Body = contentTypeEvent, cloudevents.Schema
		add(attempt)
	case FormatBatch:
		channel.ContentType = contentTypeEventBatch
		channel.Body = func(payload map[string]any) map[string]any {
			return map[string]any{"type": "array", "items": cloudevents.Schema(payload)}
		}
	case FormatBinary:
		add(append(cloudevents.Headers(eventHeaderPrefix), attempt)...)
	default:
		add(sinks.Header{Name: webhook.HeaderID, Text: "Id of the notification, the same on every attempt."},
			sinks.Header{Name: webhook.HeaderType, Text: "Name of its type."},
			sinks.Header{Name: webhook.HeaderVersion, Text: "Version of the payload."},
			sinks.Header{Name: webhook.HeaderOccurredOn, Text: "When it occurred: RFC 3339 in UTC."},
			sinks.Header{Name: webhook.HeaderKey, Text: "Ordering key.", Optional: true}, attempt)
	}
}
