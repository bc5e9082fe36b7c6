package cloudevents

import (
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/envelope"
)

// Schema returns the JSON Schema of an event in the JSON format of CloudEvents 1.0, for payloads with a schema;
// nil for payloads that are not JSON.
func Schema(payload map[string]any) map[string]any {
	return envelope.Object(map[string]any{
		"specversion":     map[string]any{"const": "1.0"},
		"id":              envelope.Text("Id of the notification, the same on every attempt."),
		"source":          envelope.Text("URI of the publisher."),
		"type":            envelope.Text("Name of the notification's type."),
		"time":            map[string]any{"type": "string", "format": "date-time", "description": "When it occurred."},
		ExtensionVersion:  map[string]any{"type": "integer", "description": "Version of the payload."},
		ExtensionKey:      envelope.Text("Ordering key, if the notification has one."),
		"datacontenttype": map[string]any{"type": "string"},
	}, "data", payload, "specversion", "id", "source", "type")
}

// Headers returns the headers of an event in binary mode, whose names begin with a prefix.
func Headers(prefix string) []sinks.Header {
	return []sinks.Header{
		{Name: prefix + "specversion", Text: "`1.0`"},
		{Name: prefix + "id", Text: "Id of the notification, the same on every attempt."},
		{Name: prefix + "source", Text: "URI of the publisher."},
		{Name: prefix + "type", Text: "Name of the notification's type."},
		{Name: prefix + "time", Text: "When it occurred: RFC 3339 in UTC.", Optional: true},
		{Name: prefix + ExtensionVersion, Text: "Version of the payload."},
		{Name: prefix + ExtensionKey, Text: "Ordering key.", Optional: true},
	}
}
