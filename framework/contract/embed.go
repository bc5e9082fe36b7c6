package contract

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// embed returns the schema for a place in another document, given as a JSON Pointer: its references then point
// there. It returns false for a schema that works only as a document of its own, because it has anchors or
// identifiers.
func (c *Contract) embed(place string) (json.RawMessage, bool) {
	e := embedder{place: place, fits: true}
	root, err := membersOf(c.Text)
	if err != nil {
		return nil, false // parse has read it
	}
	root = slices.DeleteFunc(root, func(m member) bool { return m.name == "$schema" || m.name == "$id" })
	text, err := encode(e.members(root))
	return text, err == nil && e.fits
}

// looksLikeReference matches data that a reader of the other document would take for a reference.
var looksLikeReference = regexp.MustCompile(`"\$ref"\s*:`)

type embedder struct {
	place string
	fits  bool
}

// schema rewrites a schema.
func (e *embedder) schema(text json.RawMessage) json.RawMessage {
	members, err := membersOf(text)
	if err != nil || !isObject(text) {
		return text // true or false
	}
	rewritten, _ := encode(e.members(members)) // they were decoded before
	return rewritten
}

// members rewrites the keywords of a schema.
func (e *embedder) members(all []member) (kept []member) {
	for _, m := range all {
		text := m.value.(json.RawMessage)
		switch m.name {
		case "$ref":
			var reference string
			_ = json.Unmarshal(text, &reference)
			rest, inside := strings.CutPrefix(reference, "#")
			e.fits = e.fits && inside && (rest == "" || rest[0] == '/')
			m.value = "#" + e.place + rest
		case "$id", "$anchor", "$dynamicAnchor", "$dynamicRef":
			e.fits = false
		case "examples", "default":
			if looksLikeReference.Match(text) {
				continue
			}
		case "const", "enum":
			e.fits = e.fits && !looksLikeReference.Match(text)
		case keyword:
		case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
			m.value = e.named(text)
		case "allOf", "anyOf", "oneOf", "prefixItems":
			var list []json.RawMessage
			_ = json.Unmarshal(text, &list)
			for i := range list {
				list[i] = e.schema(list[i])
			}
			m.value = list
		default:
			m.value = e.schema(text)
		}
		kept = append(kept, m)
	}
	return kept
}

// named rewrites schemas that have names.
func (e *embedder) named(text json.RawMessage) json.RawMessage {
	members, _ := membersOf(text)
	for i, m := range members {
		members[i].value = e.schema(m.value.(json.RawMessage))
	}
	rewritten, _ := encode(members)
	return rewritten
}

func isObject(text json.RawMessage) bool { return bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) }
