package kafka

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/cloudevents"
)

// Record is what a consumer has of a record, with whatever client it reads.
type Record struct {
	Key, Value []byte
	// Headers are in the record's order. Of several with one name the last one counts, as
	// for Kafka's own lastHeader.
	Headers []Header
}

// Header is a header of a record, in the form that franz-go, kafka-go and
// confluent-kafka-go have it; see [Headers].
type Header struct {
	Key   string
	Value []byte
}

// Headers takes headers over from another client's type, which is a struct of the same
// fields.
func Headers[H ~struct {
	Key   string
	Value []byte
}](headers []H) []Header {
	taken := make([]Header, len(headers))
	for i, h := range headers {
		taken[i] = Header(h)
	}
	return taken
}

// RecordOf takes a record over from sarama.
func RecordOf(m *sarama.ConsumerMessage) Record {
	r := Record{Key: m.Key, Value: m.Value, Headers: make([]Header, 0, len(m.Headers))}
	for _, h := range m.Headers {
		if h != nil {
			r.Headers = append(r.Headers, Header{string(h.Key), h.Value})
		}
	}
	return r
}

// Envelope returns what was published, of a record that the sink wrote in one of its
// formats; the record itself says in which. The payload is the record's value, not a copy.
//
// Of a record in [FormatBinary] metadata has the names that CloudEvents left of its own, and
// there is a content-type, the payload's default where nothing else was published.
//
// The error is permanent, wraps [ErrRecord] and names the header that is missing or wrong.
// A record can come twice. Remember the ids.
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

// text returns a header that must be there.
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
		h.fail(name, fmt.Sprintf("is %q, which is no whole number", text))
	}
	return n
}

func (h *headerReader) time(name string) time.Time {
	text := h.text(name)
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		h.fail(name, fmt.Sprintf("is %q, which is no time of RFC 3339", text))
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
		h.fail(eventHeaderPrefix+"specversion", fmt.Sprintf("is %q, and only 1.0 is known", version))
	}
	e.ID, e.Type, e.Version = h.text(eventHeaderPrefix+"id"), h.text(eventHeaderPrefix+"type"), h.number(eventHeaderPrefix+cloudevents.ExtensionVersion)
	if id := h.texts[HeaderWatermillUUID]; cloudevents.Attribute(id) == e.ID {
		e.ID = id // without what an event's attribute cannot have
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
	for _, name := range []string{headerContentType, notification.MetadataTraceparent, notification.MetadataTracestate} {
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
