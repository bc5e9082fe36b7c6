package contract

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
)

var (
	// inside matches the beginning of a reference to the schema itself, or to its part.
	inside = regexp.MustCompile(`("\$ref"\s*:\s*")#(/|")`)
	// alone matches what only works if the schema is a document.
	alone = regexp.MustCompile(`"\$(id|anchor|dynamicAnchor|dynamicRef)"\s*:\s*"|"\$ref"\s*:\s*"(#[^/"]|[^#])`)
)

// embed returns the schema for a place in another document, given as a JSON Pointer: its references then point
// there. It returns false for a schema that cannot be part of another document, because it has anchors or
// identifiers, or data that a reader would take for a reference.
func (c *Contract) embed(place string) (json.RawMessage, bool) {
	root, err := membersOf(c.Text)
	if err != nil {
		return nil, false // parse has read it
	}
	text, err := encode(slices.DeleteFunc(root, func(m member) bool { return m.name == "$schema" || m.name == "$id" }))
	if err != nil || alone.Match(text) {
		return nil, false
	}
	return inside.ReplaceAll(text, []byte("${1}#"+place+"$2")), true
}

// isObject reports whether JSON is an object.
func isObject(text json.RawMessage) bool { return bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) }
