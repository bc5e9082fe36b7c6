package kafka

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/cloudevents"
	"github.com/waybill-go/waybill/sinks/large"
)

// Record is a record that a consumer has read, with any client library.
type Record struct {
	Key, Value []byte
	// Headers are in the record's order. If several have the same name, the last one counts,
	// as in Kafka's lastHeader.
	Headers []Header
}

// Header is a header of a record. Use [Headers] to convert the headers of franz-go, kafka-go
// and confluent-kafka-go.
type Header struct {
	Key   string
	Value []byte
}

// Headers converts headers from another client's type, which must be a struct with the same
// fields.
func Headers[H ~struct {
	Key   string
	Value []byte
}](headers []H) []Header {
	converted := make([]Header, len(headers))
	for i, h := range headers {
		converted[i] = Header(h)
	}
	return converted
}

// Envelope converts a record that the sink wrote, in any of its formats, back to the envelope.
// It recognizes the format by the headers. The payload is the record's value, not a copy; nil for a
// tombstone. If the value was too large for a record, the payload is a pointer to it, and the metadata has
// [large.AttributeSize]: pass the envelope to [large.Fetch].
//
// For a record in [FormatBinary], metadata has the names of the CloudEvents attributes, such
// as correlationid for correlation-id. There is always a content-type; it is application/json
// if none was published.
//
// The error is permanent, wraps [ErrRecord] and names the header that is missing or wrong. A
// record can come more than once, so a consumer must remember the ids.
func Envelope(r Record) (*notification.Envelope, error) {
	h := headerReader{texts: make(map[string]string, len(r.Headers))}
	for _, header := range r.Headers {
		h.texts[header.Key] = string(header.Value)
	}
	e := &notification.Envelope{Key: string(r.Key), Payload: r.Value}
	_, plain := h.texts[HeaderID]
	_, event := h.texts[eventHeaderPrefix+"specversion"]
	switch {
	case plain:
		h.plain(e)
	case event:
		h.event(e)
	default:
		h.err = fmt.Errorf("%w: header %s is missing, and so is %sspecversion", ErrForeign, HeaderID, eventHeaderPrefix)
	}
	if h.err == nil {
		h.err = e.Validate()
	}
	if h.err != nil {
		return nil, sinks.Permanent(fmt.Errorf("%w: %w", ErrRecord, h.err))
	}
	return e, nil
}

// headerReader reads the headers of a record. It keeps the first error.
type headerReader struct {
	texts map[string]string
	err   error
}

func (h *headerReader) fail(name, problem string) {
	if h.err == nil {
		h.err = fmt.Errorf("header %s %s", name, problem)
	}
}

// text returns a required header.
func (h *headerReader) text(name string) string {
	text, ok := h.texts[name]
	if !ok {
		h.fail(name, "is missing")
	}
	return text
}

func (h *headerReader) number(name string) int {
	text := h.text(name)
	n, err := strconv.Atoi(text)
	if err != nil {
		h.fail(name, fmt.Sprintf("is %q, which is not a whole number", text))
	}
	return n
}

func (h *headerReader) time(name string) time.Time {
	text := h.text(name)
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		h.fail(name, fmt.Sprintf("is %q, which is not a time of RFC 3339", text))
	} else if year := at.UTC().Year(); year < 1 || year > 9999 {
		h.fail(name, fmt.Sprintf("is %q, which is not in the years 0001 to 9999", text))
	}
	return at.UTC()
}

// plain reads what plainHeaders wrote.
func (h *headerReader) plain(e *notification.Envelope) {
	e.ID, e.Type, e.Version, e.OccurredOn = h.text(HeaderID), h.text(HeaderType), h.number(HeaderVersion), h.time(HeaderOccurredOn)
	for name, text := range h.texts {
		switch original, renamed := strings.CutPrefix(name, HeaderMetadataPrefix); {
		case renamed && isTaken(original):
			addMetadata(e, original, text)
		case !isTaken(name):
			addMetadata(e, name, text)
		}
	}
}

// event reads what eventHeaders wrote.
func (h *headerReader) event(e *notification.Envelope) {
	if version := h.text(eventHeaderPrefix + "specversion"); !strings.HasPrefix(version, "1.") {
		h.fail(eventHeaderPrefix+"specversion", fmt.Sprintf("is %q, want 1.0", version))
	}
	e.ID, e.Type, e.Version = h.text(eventHeaderPrefix+"id"), h.text(eventHeaderPrefix+"type"), h.number(eventHeaderPrefix+cloudevents.ExtensionVersion)
	if id := h.texts[HeaderWatermillUUID]; cloudevents.Attribute(id) == e.ID {
		e.ID = id // this header has the id without the encoding of an attribute
	}
	if _, ok := h.texts[eventHeaderPrefix+"time"]; ok {
		e.OccurredOn = h.time(eventHeaderPrefix + "time")
	}
	if e.Key == "" {
		e.Key = h.texts[eventHeaderPrefix+cloudevents.ExtensionKey]
	}
	for _, name := range slices.Sorted(maps.Keys(h.texts)) {
		if extension, ok := strings.CutPrefix(name, eventHeaderPrefix); ok && !cloudevents.IsAttribute(extension) {
			addMetadata(e, extension, h.texts[name])
		}
	}
	for _, name := range []string{headerContentType, notification.MetadataTraceparent, notification.MetadataTracestate, large.AttributeSize} {
		if text := h.texts[name]; text != "" {
			addMetadata(e, name, text)
		}
	}
}

func addMetadata(e *notification.Envelope, name, text string) {
	if e.Metadata == nil {
		e.Metadata = make(notification.Metadata)
	}
	e.Metadata[name] = text
}
