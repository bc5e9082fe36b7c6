package store

import (
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

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

// CheckJSON reports why a text is not JSON in UTF-8. JSON that is nested deeper than 10,000 levels is
// refused too.
func CheckJSON(text []byte) error {
	switch {
	case !json.Valid(text):
		return errors.New("it is not valid JSON")
	case !utf8.Valid(text):
		return errors.New("its text is not UTF-8")
	}
	return nil
}

// StatementBytes is how large a statement with many rows becomes, if the database could take more. A
// larger one saves nothing, and costs memory on both sides.
const StatementBytes = 8 << 20

// Limits is how large a statement of a database can be.
type Limits struct {
	// Parameters is how many parameters a statement can have.
	Parameters int
	// Bytes is how large the rows of a statement may be together, as Size counts. A statement of a
	// single row may be larger.
	Bytes int
	// Refs is how many rows a condition should name.
	Refs int
	// Row is how large a single row may be; 0 means no limit that matters.
	Row int
	// Setting is the setting of the server to which Row belongs.
	Setting string
}

// Size returns about how many bytes an envelope takes in a statement or in memory.
func Size(e *notification.Envelope) int {
	const fixed = 512 // times, numbers, and what is around them
	size := fixed + len(e.Payload) + len(e.Key) + len(e.ID) + len(e.Type)
	for name, value := range e.Metadata {
		size += len(name) + len(value)
	}
	return size
}

// Chunks cuts rows into parts for one statement each: of at most so many rows, and of at most so many
// bytes unless a row alone is larger.
func Chunks[T any](rows []T, most, bytes int, size func(row *T) int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		first, total := 0, 0
		for i := range rows {
			next := size(&rows[i])
			if i > first && (i-first == most || total+next > bytes) {
				if !yield(rows[first:i:i]) {
					return
				}
				first, total = i, 0
			}
			total += next
		}
		if first < len(rows) {
			yield(rows[first:])
		}
	}
}
