package httpsink

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/notification"
)

// Content types of CloudEvents 1.0, JSON Event Format, sections 3 and 4. Without a
// charset, which JSON does not need: some libraries know a batch by the exact text.
const (
	contentTypeEvent      = "application/cloudevents+json"
	contentTypeEventBatch = "application/cloudevents-batch+json"
)

// Attributes that Waybill adds to those of CloudEvents: the ordering key, by the
// name of the Partitioning extension, and the payload's version.
const (
	extensionKey     = "partitionkey"
	extensionVersion = "payloadversion"

	eventHeaderPrefix = "Ce-"
)

// attributes are the names that no metadata can have in an event.
var attributes = map[string]bool{
	"id": true, "source": true, "specversion": true, "type": true, "datacontenttype": true, "dataschema": true,
	"subject": true, "time": true, "data": true, extensionKey: true, extensionVersion: true,
}

// eventHeader returns the headers of an event in binary mode: CloudEvents 1.0,
// HTTP Protocol Binding, section 3.1.
func (s *Sink) eventHeader(d *notification.Delivery, payload []byte) http.Header {
	w := s.newHeader(12 + len(d.Metadata))
	set := func(name, value string) { w.set(eventHeaderPrefix+upperFirst(name), encodeEventValue(value)) }
	set("specversion", "1.0")
	set("id", attribute(d.ID))
	set("source", s.source)
	set("type", attribute(d.Type))
	if !d.OccurredOn.IsZero() {
		set("time", formatTime(d.OccurredOn))
	}
	set(extensionVersion, strconv.Itoa(d.Version))
	if d.Key != "" {
		set(extensionKey, attribute(d.Key))
	}
	for name, value := range extensions(d.Metadata) {
		set(name, attribute(value))
	}
	w.setPlain(headerContentType, contentType(d))
	s.addAttempt(&w, d)
	s.finish(&w, encodeValue(d.ID), payload)
	return w.header
}

// structuredHeader returns the headers of an event in structured mode.
func (s *Sink) structuredHeader(d *notification.Delivery, event []byte) http.Header {
	w := s.newHeader(8)
	w.set(headerContentType, contentTypeEvent)
	s.addAttempt(&w, d)
	s.finish(&w, encodeValue(d.ID), event)
	return w.header
}

// batchHeader returns the headers of a batch. Its id is that of the batch: the
// same events give the same one, other events never do, so that a receiver
// that remembers ids never drops a batch for another one's.
func (s *Sink) batchHeader(batch []*notification.Delivery, events []byte) http.Header {
	w := s.newHeader(5)
	w.set(headerContentType, contentTypeEventBatch)
	s.finish(&w, batchID(batch), events)
	return w.header
}

func batchID(batch []*notification.Delivery) string {
	ids := sha256.New()
	for _, d := range batch {
		ids.Write([]byte(strconv.Itoa(len(d.ID)) + ":" + d.ID)) // a hash never fails
	}
	return "batch_" + hex.EncodeToString(ids.Sum(nil)[:16])
}

// addAttempt sets what travels beside an event.
func (s *Sink) addAttempt(w *headerWriter, d *notification.Delivery) {
	w.set(HeaderAttempt, strconv.Itoa(d.Attempt))
	w.setPlain(headerTraceparent, d.Metadata.Get(notification.MetadataTraceparent))
	w.setPlain(headerTracestate, d.Metadata.Get(metadataTracestate))
}

// appendBatch appends events as a JSON array: JSON Event Format, section 4.
func (s *Sink) appendBatch(b []byte, batch []*notification.Delivery) []byte {
	b = append(b, '[')
	for i, d := range batch {
		if i > 0 {
			b = append(b, ',')
		}
		b = s.appendEvent(b, d)
	}
	return append(b, ']')
}

// appendEvent appends one event as JSON. A payload that is JSON stands in it
// byte for byte; any other one in base64.
func (s *Sink) appendEvent(b []byte, d *notification.Delivery) []byte {
	b = append(b, `{"specversion":"1.0"`...)
	b = appendMember(b, "id", attribute(d.ID))
	b = appendMember(b, "source", s.source)
	b = appendMember(b, "type", attribute(d.Type))
	if !d.OccurredOn.IsZero() {
		b = appendMember(b, "time", formatTime(d.OccurredOn))
	}
	b = append(b, `,"`+extensionVersion+`":`...)
	b = strconv.AppendInt(b, int64(d.Version), 10)
	if d.Key != "" {
		b = appendMember(b, extensionKey, attribute(d.Key))
	}
	for name, value := range extensions(d.Metadata) {
		b = appendMember(b, name, attribute(value))
	}
	media := contentType(d)
	b = appendMember(b, "datacontenttype", media)
	switch {
	case len(d.Payload) == 0:
	case isJSON(media) && utf8.Valid(d.Payload) && json.Valid(d.Payload):
		b = append(b, `,"data":`...)
		b = append(b, bytes.TrimSpace(d.Payload)...)
	default:
		b = append(b, `,"data_base64":"`...)
		b = base64.StdEncoding.AppendEncode(b, d.Payload)
		b = append(b, '"')
	}
	return append(b, '}')
}

func appendMember(b []byte, name, value string) []byte {
	text, _ := json.Marshal(value) // a string can always be written
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	return append(b, text...)
}

// contentType returns the payload's media type. What is none would make an event
// invalid: such a payload is mere bytes.
func contentType(d *notification.Delivery) string {
	media := d.Metadata.Get(notification.MetadataContentType)
	if media == "" || media == defaultContentType {
		return defaultContentType
	}
	if name, _, err := mime.ParseMediaType(media); err != nil || !strings.Contains(name, "/") || !isPlain(media) {
		return "application/octet-stream"
	}
	return media
}

// isJSON follows the JSON Event Format, section 3.1: the subtype is json, or
// ends with +json.
func isJSON(media string) bool {
	if media == defaultContentType {
		return true
	}
	name, _, _ := mime.ParseMediaType(media) // "" if it is none
	_, subtype, _ := strings.Cut(name, "/")
	return subtype == "json" || strings.HasSuffix(subtype, "+json")
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
		case isAlphanumeric(c):
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
	b := make([]byte, 0, len(s)+16)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		for _, c := range []byte(s[i : i+size]) {
			if notInString(r) {
				b = append(b, '%', upperHexDigits[c>>4], upperHexDigits[c&15])
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

// encodeEventValue encodes a header of an event: HTTP Protocol Binding, section
// 3.1.3.2. Spaces, quotes and all beyond printable ASCII are percent-encoded.
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

// upperFirst gives an attribute's name, of which ASCII is known, the case of
// http.CanonicalHeaderKey.
func upperFirst(name string) string { return strings.ToUpper(name[:1]) + name[1:] }
