// Package cloudevents is what sinks share that write CloudEvents 1.0: the attributes
// of a notification, and what their type system makes of names and texts. How they
// travel is the business of each protocol's binding.
package cloudevents

import (
	"iter"
	"maps"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/notification"
)

// Attributes that Waybill adds to those of CloudEvents: the ordering key, by the
// name of the Partitioning extension, and the payload's version.
const (
	ExtensionKey     = "partitionkey"
	ExtensionVersion = "payloadversion"
)

// attributes are the names that no metadata can have in an event.
var attributes = map[string]bool{
	"id": true, "source": true, "specversion": true, "type": true, "datacontenttype": true, "dataschema": true,
	"subject": true, "time": true, "data": true, ExtensionKey: true, ExtensionVersion: true,
}

// IsAttribute says whether an attribute of that name is no metadata.
func IsAttribute(name string) bool { return attributes[name] }

// defaultContentType is that of a payload whose metadata has none.
const defaultContentType = "application/json"

// ContentType returns a payload's media type, by its metadata. What is none, or has
// characters that are not legal where it goes, would make an event invalid: such a
// payload is mere bytes.
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

// Extensions yields metadata as extension attributes, in the order of the
// metadata's names. Of several that come to the same name the first one stays;
// what has no value, or a name without a letter or digit, or the name of
// another attribute is left out.
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

// Attribute makes any text a String of CloudEvents 1.0 ("Type System"), which has
// no control characters and no noncharacters: these are percent-encoded.
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

// IsString says whether a text is a String of CloudEvents as it stands.
func IsString(s string) bool { return !strings.ContainsFunc(s, notInString) }

func notInString(r rune) bool {
	return r < ' ' || 0x7f <= r && r <= 0x9f || 0xfdd0 <= r && r <= 0xfdef || r&0xfffe == 0xfffe || r == utf8.RuneError
}
