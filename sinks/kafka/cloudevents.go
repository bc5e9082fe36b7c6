package kafka

import (
	"maps"
	"mime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/IBM/sarama"

	"github.com/waybill-go/waybill/framework/notification"
)

// Headers of an event: CloudEvents 1.0.2, Kafka Protocol Binding, section 3.2.3.
const (
	eventHeaderPrefix = "ce_"
	headerContentType = "content-type"

	defaultContentType = "application/json"
)

// Attributes that Waybill adds to those of CloudEvents: the ordering key, by the
// name of the Partitioning extension, and the payload's version.
const (
	extensionKey     = "partitionkey"
	extensionVersion = "payloadversion"
)

// metadataTracestate goes with notification.MetadataTraceparent.
const metadataTracestate = "tracestate"

// attributes are the names that no metadata can have in an event.
var attributes = map[string]bool{
	"id": true, "source": true, "specversion": true, "type": true, "datacontenttype": true, "dataschema": true,
	"subject": true, "time": true, "data": true, extensionKey: true, extensionVersion: true,
}

// eventHeaders returns the headers of an event in binary mode. Values are UTF-8
// as they are: unlike HTTP's, Kafka's binding encodes nothing.
func eventHeaders(e *notification.Envelope, source string) []sarama.RecordHeader {
	list := make([]sarama.RecordHeader, 0, 11+len(e.Metadata))
	add := func(name, value string) {
		list = append(list, sarama.RecordHeader{Key: []byte(name), Value: []byte(value)})
	}
	set := func(name, value string) { add(eventHeaderPrefix+name, value) }
	set("specversion", "1.0")
	set("id", attribute(e.ID))
	set("source", source)
	set("type", attribute(e.Type))
	if !e.OccurredOn.IsZero() {
		set("time", e.OccurredOn.UTC().Format(OccurredOnLayout))
	}
	set(extensionVersion, strconv.Itoa(e.Version))
	if e.Key != "" {
		set(extensionKey, attribute(e.Key))
	}
	for name, value := range extensions(e.Metadata) {
		set(name, attribute(value))
	}
	add(headerContentType, contentType(e))
	for _, name := range []string{notification.MetadataTraceparent, metadataTracestate} {
		if value := e.Metadata.Get(name); value != "" {
			add(name, value)
		}
	}
	return append(list, sarama.RecordHeader{Key: headerWatermillUUID, Value: []byte(e.ID)})
}

// contentType returns the payload's media type. What is none would make an event
// invalid: such a payload is mere bytes.
func contentType(e *notification.Envelope) string {
	media := e.Metadata.Get(notification.MetadataContentType)
	if media == "" || media == defaultContentType {
		return defaultContentType
	}
	if name, _, err := mime.ParseMediaType(media); err != nil || !strings.Contains(name, "/") || strings.ContainsFunc(media, notInString) {
		return "application/octet-stream"
	}
	return media
}

// extensions yields metadata as extension attributes, in the order of the
// metadata's names. Of several that come to the same name the first one stays;
// what has no value, or a name without a letter or digit, or the name of
// another attribute is left out.
func extensions(m notification.Metadata) func(yield func(name, value string) bool) {
	return func(yield func(name, value string) bool) {
		seen := make(map[string]bool, len(m))
		for _, name := range slices.Sorted(maps.Keys(m)) {
			extension := extensionName(name)
			if name == notification.MetadataContentType || m[name] == "" || extension == "" || attributes[extension] || seen[extension] {
				continue
			}
			seen[extension] = true
			if !yield(extension, m[name]) {
				return
			}
		}
	}
}

// extensionName leaves the letters a to z and digits, which is all that
// CloudEvents 1.0 allows ("Naming Conventions"): correlation-id becomes
// correlationid.
func extensionName(name string) string {
	b := make([]byte, 0, len(name))
	for i := range len(name) {
		switch c := name[i]; {
		case 'A' <= c && c <= 'Z':
			b = append(b, c+'a'-'A')
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			b = append(b, c)
		}
	}
	return string(b)
}

// attribute makes any text a String of CloudEvents 1.0 ("Type System"), which has
// no control characters and no noncharacters: these are percent-encoded.
func attribute(s string) string {
	if !strings.ContainsFunc(s, notInString) {
		return s
	}
	const hex = "0123456789ABCDEF"
	b := make([]byte, 0, len(s)+16)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		for _, c := range []byte(s[i : i+size]) {
			if notInString(r) {
				b = append(b, '%', hex[c>>4], hex[c&15])
			} else {
				b = append(b, c)
			}
		}
		i += size
	}
	return string(b)
}

func notInString(r rune) bool {
	return r < ' ' || 0x7f <= r && r <= 0x9f || 0xfdd0 <= r && r <= 0xfdef || r&0xfffe == 0xfffe || r == utf8.RuneError
}
