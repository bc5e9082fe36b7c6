package contract

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Compatibility is what a change of a contract must keep. It applies within a version: another version may
// differ in everything.
type Compatibility string

// The kinds of compatibility. Forward is the default, since publishers are deployed without their consumers.
const (
	// Forward: consumers of the earlier schema read what is published with the new one.
	Forward Compatibility = "forward"
	// Backward: consumers of the new schema, such as the program's own handlers, read what was published
	// with the earlier one, which the log may still have.
	Backward Compatibility = "backward"
	// Full is both.
	Full Compatibility = "full"
	// None allows every change.
	None Compatibility = "none"
)

// Valid reports whether c is one of the four.
func (c Compatibility) Valid() bool {
	return slices.Contains([]Compatibility{Forward, Backward, Full, None}, c)
}

// Break is a change that breaks a contract.
type Break struct {
	Type    string `json:"type"`
	Version int    `json:"version"`
	// Field is the path of the field, such as lines[].price; "" for the type or the payload as a whole.
	Field string `json:"field,omitempty"`
	// Text is a sentence with what has changed, whom it breaks and what to do.
	Text string `json:"text"`
}

// String returns the sentence.
func (b Break) String() string { return b.Text }

// Compare returns what a change from the published contracts to new ones breaks, sorted by type and version;
// nil if nothing. Types and versions that are new break nothing. Only within a version are schemas compared. A
// version that is only read must still read what is stored, whatever keep is.
func Compare(published, next *Set, keep Compatibility) []Break {
	if keep == None {
		return nil
	}
	var breaks []Break
	for _, old := range published.All() {
		c, ok := next.Of(old.Type, old.Version)
		switch {
		case !ok, c.Type != old.Type && !old.Former:
			breaks = append(breaks, missing(old, c, next))
			continue
		case c.Type == old.Type:
			breaks = append(breaks, compareAbout(old, c)...)
		}
		switch {
		case old.ContentType != "" || c.ContentType != "":
			continue
		case c.Former: // what is stored must be read, and nothing new is published
			breaks = append(breaks, compareSchemas(lenient(c.object), old.object, c.About, backward)...)
			continue
		}
		if keep != Backward {
			breaks = append(breaks, compareSchemas(old.object, c.object, c.About, forward)...)
		}
		if keep != Forward {
			breaks = append(breaks, compareSchemas(c.object, old.object, c.About, backward)...)
		}
	}
	return breaks
}

// Same reports whether two contracts mean the same: they may differ in descriptions and examples.
func Same(a, b *Contract) bool {
	return reflect.DeepEqual(meaning(a.object), meaning(b.object)) && a.Key == b.Key && a.Former == b.Former && a.ContentType == b.ContentType
}

// annotations are the keywords that do not say which payloads fit.
var annotations = []string{"$schema", "$id", "$comment", "title", "description", "default", "deprecated", "readOnly", "writeOnly", "examples"}

// meaning returns a schema without its annotations.
func meaning(schema any) any {
	return without(schema, true, func(keyword string) bool {
		return slices.Contains(annotations, keyword) || strings.HasPrefix(keyword, "x-")
	})
}

// lenient returns a schema without required fields.
func lenient(schema map[string]any) map[string]any {
	return objectOf(without(schema, true, func(keyword string) bool { return keyword == "required" }))
}

// without returns a copy of a schema without some keywords. Members of properties and $defs are no keywords,
// and values are no schemas.
func without(v any, isSchema bool, dropped func(keyword string) bool) any {
	switch v := v.(type) {
	case map[string]any:
		kept := make(map[string]any, len(v))
		for name, value := range v {
			switch {
			case isSchema && dropped(name):
			case isSchema && slices.Contains([]string{"enum", "const", "examples", "default"}, name):
				kept[name] = value
			case isSchema && name == "required":
				texts := textsOf(value) // whose order means nothing
				slices.Sort(texts)
				kept[name] = texts
			default:
				names := isSchema && slices.Contains([]string{"properties", "$defs", "patternProperties", "dependentSchemas"}, name)
				kept[name] = without(value, !names, dropped)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(v))
		for i, value := range v {
			kept[i] = without(value, isSchema, dropped)
		}
		return kept
	}
	return v
}

// missing describes a version that the new contracts do not have, or only under another name.
func missing(old, renamed *Contract, next *Set) Break {
	b := Break{Type: old.Type, Version: old.Version}
	switch {
	case renamed != nil:
		b.Text = fmt.Sprintf("%s is now %s: consumers look for %s; keep the name, publish both, or remove %s once none of them is left", old.Type, renamed.Type, old.Type, old.FileName())
	case !next.Knows(old.Type):
		b.Text = fmt.Sprintf("%s was removed: consumers look for it, and stored rows cannot be read; keep the type, or remove %s once none is left (waybill types --all)", old.About, old.FileName())
	case old.Former:
		b.Text = fmt.Sprintf("%s can no longer be read: rows may still be stored; keep its upcaster, or remove %s once none is left (waybill types --all)", old.About, old.FileName())
	default:
		b.Text = fmt.Sprintf("%s was removed: consumers read it, and stored rows cannot be read; keep version %d", old.About, old.Version)
	}
	return b
}

// compareAbout compares what is not in the schema itself.
func compareAbout(old, c *Contract) (breaks []Break) {
	add := func(format string, args ...any) {
		breaks = append(breaks, Break{Type: old.Type, Version: old.Version, Text: old.String() + fmt.Sprintf(format, args...)})
	}
	if old.Key && !c.Key && !c.Former {
		add(" no longer has an ordering key: consumers rely on the order; add registry.Key, or set compat")
	}
	if old.Former && !c.Former {
		add(" is published again, instead of a newer version: consumers of the newer one no longer get it; publish that one, or set compat")
	}
	if before, after := contentType(old), contentType(c); before != after {
		add(" is now %s, not %s: consumers cannot decode it; keep the serializer, publish v%d with an upcaster, or set compat", after, before, old.Version+1)
	}
	return breaks
}

func contentType(c *Contract) string {
	if c.ContentType == "" {
		return "application/json"
	}
	return c.ContentType
}

// direction says which of two schemas is the older one.
type direction int

const (
	forward  direction = iota // the reader has the old schema
	backward                  // the reader has the new schema
)

// comparison finds what a writer may write and a reader does not accept.
type comparison struct {
	about          About
	direction      direction
	reader, writer map[string]any // the documents
	breaks         []Break
	seen           map[[2]uintptr]bool // the pairs of schemas that are being compared, which may be recursive
	merged         map[place]map[string]any
}

func compareSchemas(reader, writer map[string]any, about About, d direction) []Break {
	c := &comparison{about: about, direction: d, reader: reader, writer: writer, seen: make(map[[2]uintptr]bool), merged: make(map[place]map[string]any)}
	c.accepts(reader, writer, "")
	slices.SortFunc(c.breaks, func(a, b Break) int { return strings.Compare(a.Text, b.Text) })
	return slices.CompactFunc(c.breaks, func(a, b Break) bool { return a.Text == b.Text })
}

// report adds a break: what has changed, in the words of the direction.
func (c *comparison) report(field, inForward, inBackward string) {
	subject := "the payload of " + c.about.String()
	if field != "" {
		subject = fmt.Sprintf("field %s of %s", field, c.about)
	}
	text := inForward
	if c.direction == backward {
		text = inBackward
	}
	wayOut := fmt.Sprintf("publish v%d with an upcaster", c.about.Version+1)
	if c.about.Former {
		wayOut = "keep the Go type of that version as it was"
	}
	text = fmt.Sprintf("%s %s; %s, or set compat", subject, text, wayOut)
	c.breaks = append(c.breaks, Break{c.about.Type, c.about.Version, field, text})
}

func (c *comparison) consumers() string { return fmt.Sprintf("consumers of v%d", c.about.Version) }
func (c *comparison) rows() string      { return fmt.Sprintf("stored rows of v%d", c.about.Version) }

// accepts reports what a value that fits the schema w may have and the schema r refuses.
func (c *comparison) accepts(r, w any, field string) {
	reader, writer := c.object(r, c.reader), c.object(w, c.writer)
	switch {
	case writer == nil: // writes nothing
		return
	case reader == nil:
		c.report(field, "is new: "+c.consumers()+" refuse it", "is no longer allowed: "+c.rows()+" may have it")
		return
	}
	pair := [2]uintptr{reflect.ValueOf(reader).Pointer(), reflect.ValueOf(writer).Pointer()}
	if c.seen[pair] {
		return
	}
	c.seen[pair] = true
	if branches := c.branches(writer, c.writer); branches != nil {
		for _, branch := range branches {
			c.accepts(reader, branch, field)
		}
		return
	}
	if branches := c.branches(reader, c.reader); branches != nil {
		c.acceptsAny(branches, writer, field)
		return
	}
	if !c.acceptsTypes(reader, writer, field) {
		return
	}
	c.acceptsValues(reader, writer, field)
	c.acceptsLimits(reader, writer, field)
	c.acceptsKeywords(reader, writer, field)
	c.acceptsFields(reader, writer, field)
	c.acceptsItems(reader, writer, field)
}
