package store

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/notification"
)

// MetadataUnread is the name under which DecodeMetadata keeps what it cannot decode.
const MetadataUnread = "unread-metadata"

// DecodeMetadata decodes the metadata column: a flat JSON object. Producers in other languages
// may write any values: a value that is not a string is kept as its JSON text, and null as "".
// No row stops a reader: what Go takes for invalid, and a database does not, such as values nested
// deeper than 10,000 levels, is kept as one text.
func DecodeMetadata(raw []byte) notification.Metadata {
	var values map[string]json.RawMessage
	if json.Unmarshal(raw, &values) != nil {
		return notification.Metadata{MetadataUnread: strings.ToValidUTF8(string(raw), "\uFFFD")}
	}
	m := make(notification.Metadata, len(values))
	for name, value := range values {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		m[name] = text
	}
	return m
}

// EncodeMetadata is the inverse of DecodeMetadata; nil gives {}. Its output is that of
// json.Marshal, with sorted names, so equal metadata has equal text. It does not use
// json.Marshal, which takes several times as long for a map.
func EncodeMetadata(m notification.Metadata) (string, error) {
	if len(m) == 0 {
		return "{}", nil
	}
	names := make([]string, 0, 16)
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	text := make([]byte, 0, 512)
	separator := byte('{')
	for _, name := range names {
		text = append(text, separator)
		var err error
		if text, err = appendText(text, name); err != nil {
			return "", err
		}
		text = append(text, ':')
		if text, err = appendText(text, m[name]); err != nil {
			return "", err
		}
		separator = ','
	}
	text = append(text, '}')
	return string(text), nil
}

// appendText appends s as a JSON string.
func appendText(b []byte, s string) ([]byte, error) {
	if !isPlain(s) {
		quoted, err := json.Marshal(s)
		return append(b, quoted...), err
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"'), nil
}

// isPlain reports whether s needs no escaping in JSON.
func isPlain(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}
