// Package cloudevents has what the sinks that write CloudEvents 1.0 share: the attributes of
// a notification, and the rules for their names and values. The sinks themselves implement
// the binding of their protocol.
package cloudevents

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks/internal/envelope"
)

// Extension attributes that Waybill adds: the ordering key, under the name of the
// Partitioning extension, and the payload's version.
const (
	ExtensionKey     = "partitionkey"
	ExtensionVersion = "payloadversion"
)

// attributes are the names in an event that metadata cannot use.
var attributes = map[string]bool{
	"id": true, "source": true, "specversion": true, "type": true, "datacontenttype": true, "dataschema": true,
	"subject": true, "time": true, "data": true, ExtensionKey: true, ExtensionVersion: true,
}

// IsAttribute reports whether name is an attribute of CloudEvents or of Waybill, so that it
// does not come from metadata.
func IsAttribute(name string) bool { return attributes[name] }

// defaultContentType is the content type of a payload whose metadata has none.
const defaultContentType = "application/json"

// ContentType returns a payload's media type according to its metadata. legal reports whether
// a text has only characters that the protocol allows. If the metadata has something that is
// not a media type or not legal, the event would be invalid, so ContentType returns
// application/octet-stream.
func ContentType(m notification.Metadata, legal func(text string) bool) string {
	media := m.Get(notification.MetadataContentType)
	if media == "" || media == defaultContentType {
		return defaultContentType
	}
	if name, _, err := mime.ParseMediaType(media); err != nil || !strings.Contains(name, "/") || !legal(media) {
		return "application/octet-stream"
	}
	return media
}

// Extensions yields metadata as extension attributes, in the order of the metadata's names.
// If several names become the same extension name, the first one counts. Metadata is left
// out if its value is empty, if its name has no letter and no digit, or if its name becomes
// that of another attribute.
func Extensions(m notification.Metadata) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		seen := make(map[string]bool, len(m))
		for _, name := range slices.Sorted(maps.Keys(m)) {
			extension := extensionName(name)
			if name == notification.MetadataContentType || m[name] == "" || extension == "" || attributes[extension] || seen[extension] {
				continue
			}
			seen[extension] = true
			if !yield(extension, Attribute(m[name])) {
				return
			}
		}
	}
}

// extensionName keeps only the letters and digits of a name, in lower case, which are the
// characters that CloudEvents 1.0 allows ("Naming Conventions"): correlation-id becomes
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

// CheckSource returns why a text cannot be the source of events: a URI, absolute or relative (RFC 3986, section 2),
// without a user, whom every consumer would see.
func CheckSource(text string) error {
	source, err := url.Parse(text)
	switch {
	case text == "":
		return errors.New("is missing; every event needs it; name the publisher, such as /shop")
	case err != nil || strings.ContainsFunc(text, notInURI):
		return fmt.Errorf("%q is not a URI; write one such as https://shop.example/orders or /shop", text)
	case source.User != nil:
		return errors.New("contains a user, which every consumer would see")
	}
	return nil
}

func notInURI(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"<>\\^`{|}", r) }

// Append appends an event in the JSON format, with some metadata: CloudEvents 1.0, JSON Event Format. It contains a
// JSON payload byte for byte, and any other payload as base64. media is the content type of the payload.
func Append(b []byte, e *notification.Envelope, source string, metadata notification.Metadata, media string) []byte {
	b = append(b, `{"specversion":"1.0"`...)
	b = envelope.AppendMember(b, "id", Attribute(e.ID))
	b = envelope.AppendMember(b, "source", source)
	b = envelope.AppendMember(b, "type", Attribute(e.Type))
	if !e.OccurredOn.IsZero() {
		b = envelope.AppendMember(b, "time", envelope.FormatTime(e.OccurredOn))
	}
	b = append(b, `,"`+ExtensionVersion+`":`...)
	b = strconv.AppendInt(b, int64(e.Version), 10)
	if e.Key != "" {
		b = envelope.AppendMember(b, ExtensionKey, Attribute(e.Key))
	}
	for name, value := range Extensions(metadata) {
		b = envelope.AppendMember(b, name, value)
	}
	b = envelope.AppendMember(b, "datacontenttype", media)
	b = envelope.AppendPayload(b, "data", media, e.Payload)
	return append(b, '}')
}

// Attribute makes a text a String of CloudEvents 1.0 ("Type System"): it percent-encodes
// control characters and noncharacters, which a String cannot contain.
func Attribute(s string) string {
	if IsString(s) {
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

// IsString reports whether a text is already a String of CloudEvents.
func IsString(s string) bool { return !strings.ContainsFunc(s, notInString) }

func notInString(r rune) bool {
	return r < ' ' || 0x7f <= r && r <= 0x9f || 0xfdd0 <= r && r <= 0xfdef || r&0xfffe == 0xfffe || r == utf8.RuneError
}
