package kafka

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/internal/cloudevents"
	"github.com/waybill-go/waybill/sinks/large"
)

// Names of an event's headers: CloudEvents 1.0.2, Kafka Protocol Binding, section 3.2.3.
const (
	eventHeaderPrefix = "ce_"
	headerContentType = "content-type"
)

// eventHeaders returns the headers of an event in binary mode. Their values are UTF-8 without
// further encoding, unlike in CloudEvents' HTTP binding. A contentType replaces that of the metadata.
func eventHeaders(e *notification.Envelope, source, contentType string) []kgo.RecordHeader {
	h := newHeaders(e, 12)
	set := func(name, value string) { h.add(eventHeaderPrefix+name, value) }
	set("specversion", "1.0")
	set("id", cloudevents.Attribute(e.ID))
	set("source", source)
	set("type", cloudevents.Attribute(e.Type))
	if !e.OccurredOn.IsZero() {
		h.addTime(eventHeaderPrefix+"time", e)
	}
	set(cloudevents.ExtensionVersion, strconv.Itoa(e.Version))
	if e.Key != "" {
		set(cloudevents.ExtensionKey, cloudevents.Attribute(e.Key))
	}
	for name, value := range cloudevents.Extensions(e.Metadata) {
		set(name, value)
	}
	if contentType == "" {
		contentType = cloudevents.ContentType(e.Metadata, cloudevents.IsString)
	}
	h.add(headerContentType, contentType)
	for _, name := range []string{notification.MetadataTraceparent, notification.MetadataTracestate, large.AttributeSize} {
		if value := e.Metadata.Get(name); value != "" {
			h.add(name, value)
		}
	}
	h.add(HeaderWatermillUUID, e.ID)
	return h.list
}
