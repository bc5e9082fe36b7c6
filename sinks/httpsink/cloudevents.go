package httpsink

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
	"github.com/waybill-go/waybill/sinks/internal/cloudevents"
	"github.com/waybill-go/waybill/sinks/internal/envelope"
)

// Content types of CloudEvents 1.0, JSON Event Format, sections 3 and 4. They have no charset,
// which JSON does not need, because some libraries recognize a batch by the exact text.
const (
	contentTypeEvent      = "application/cloudevents+json"
	contentTypeEventBatch = "application/cloudevents-batch+json"
)

const eventHeaderPrefix = "Ce-"

// eventHeader returns the headers of an event in binary mode: CloudEvents 1.0,
// HTTP Protocol Binding, section 3.1.
func (s *Sink) eventHeader(d *notification.Delivery) headerWriter {
	metadata := s.metadata.of(d.Metadata)
	w := s.newHeader(12 + len(metadata))
	set := func(name, value string) { w.set(eventHeaderPrefix+upperFirst(name), encodeEventValue(value)) }
	set("specversion", "1.0")
	set("id", cloudevents.Attribute(d.ID))
	set("source", s.source)
	set("type", cloudevents.Attribute(d.Type))
	if !d.OccurredOn.IsZero() {
		set("time", envelope.FormatTime(d.OccurredOn))
	}
	set(cloudevents.ExtensionVersion, strconv.Itoa(d.Version))
	if d.Key != "" {
		set(cloudevents.ExtensionKey, cloudevents.Attribute(d.Key))
	}
	for name, value := range cloudevents.Extensions(metadata) {
		set(name, value)
	}
	w.setPlain(headerContentType, cloudevents.ContentType(d.Metadata, isPlain))
	s.addAttempt(&w, d)
	return w
}

// bodyHeader returns the headers of a request whose body has the whole notification.
func (s *Sink) bodyHeader(d *notification.Delivery, contentType string) headerWriter {
	w := s.contentHeader(contentType)
	s.addAttempt(&w, d)
	return w
}

// contentHeader returns the headers of a request that has everything else in its body.
func (s *Sink) contentHeader(contentType string) headerWriter {
	w := s.newHeader(8)
	w.set(headerContentType, contentType)
	return w
}

// batchID returns the id of a batch. The same events have the same id, and other events have a
// different one, so that a receiver that remembers ids does not take one batch for another.
func batchID(batch []*notification.Delivery) string {
	ids := sha256.New()
	for _, d := range batch {
		ids.Write([]byte(strconv.Itoa(len(d.ID)) + ":" + d.ID)) // a hash never fails
	}
	return "batch_" + hex.EncodeToString(ids.Sum(nil)[:16])
}

// addAttempt sets the attempt and the trace context.
func (s *Sink) addAttempt(w *headerWriter, d *notification.Delivery) {
	w.set(webhook.HeaderAttempt, strconv.Itoa(d.Attempt))
	w.setPlain(headerTraceparent, d.Metadata.Get(notification.MetadataTraceparent))
	w.setPlain(headerTracestate, d.Metadata.Get(notification.MetadataTracestate))
}

// appendBatch appends the first n events as a JSON array: JSON Event Format, section 4. n is
// the number that max_bytes allows, at least 1.
func (s *Sink) appendBatch(b []byte, batch []*notification.Delivery) (_ []byte, n int) {
	return envelope.AppendArray(b, batch, s.maxBytes, s.appendEvent)
}

// appendEvent appends one event as JSON.
func (s *Sink) appendEvent(b []byte, d *notification.Delivery) []byte {
	return cloudevents.Append(b, d.Envelope, s.source, s.metadata.of(d.Metadata), cloudevents.ContentType(d.Metadata, isPlain))
}

// encodeEventValue encodes a header of an event: HTTP Protocol Binding, section 3.1.3.2. Spaces,
// quotes, percent signs and all bytes outside printable ASCII are percent-encoded.
func encodeEventValue(s string) string {
	if isPlain(s) && !strings.ContainsAny(s, ` "%`) {
		return s
	}
	b := make([]byte, 0, len(s)+16)
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '"' || c == '%' {
			b = append(b, '%', upperHexDigits[c>>4], upperHexDigits[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// upperFirst gives an attribute's name, which is ASCII, the case of http.CanonicalHeaderKey.
func upperFirst(name string) string { return strings.ToUpper(name[:1]) + name[1:] }
