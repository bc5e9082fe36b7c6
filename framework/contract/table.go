package contract

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// Field is a value in the payloads of a version, for people who read about it.
type Field struct {
	// Path is its place: lines[].price.cents is a member of each item of a list, and by.* is a member with any
	// name. "" is the payload itself.
	Path string
	// Type is what it can be, such as "string (date-time) or null".
	Type string
	// Required reports that it is there whenever the object that it belongs to is.
	Required bool
	Text     string
}

// Limits of a table: a short schema can describe an endless one.
const (
	mostFields = 500
	mostLooks  = 5_000
)

// Fields returns the table of a version's fields, in the order of the schema. It has at most 500, and complete
// is false if there are more. A schema that refers to itself is not followed again.
func (c *Contract) Fields() (fields []Field, complete bool) {
	t := table{root: c.Text}
	root := t.look(c.Text, []string{"#"})
	t.below("", root)
	if len(t.fields) == 0 {
		t.fields = []Field{{Type: t.typeOf(root), Required: true}}
	}
	return t.fields[:min(len(t.fields), mostFields)], t.looks <= mostLooks && len(t.fields) <= mostFields
}

type table struct {
	root   json.RawMessage
	fields []Field
	looks  int
}

// outline is what a table shows of a schema.
type outline struct {
	Type       json.RawMessage   `json:"type"`
	Format     string            `json:"format"`
	Encoding   string            `json:"contentEncoding"`
	Text       string            `json:"description"`
	Reference  string            `json:"$ref"`
	Const      json.RawMessage   `json:"const"`
	Enum       []json.RawMessage `json:"enum"`
	Properties json.RawMessage   `json:"properties"`
	Required   []string          `json:"required"`
	Items      json.RawMessage   `json:"items"`
	Others     json.RawMessage   `json:"additionalProperties"`
	AllOf      []json.RawMessage `json:"allOf"`
	AnyOf      []json.RawMessage `json:"anyOf"`
	OneOf      []json.RawMessage `json:"oneOf"`
	above      []string          // the references that led here
	again      string            // a reference that is among them
}

// look returns the outline of a schema, or of the one that it refers to.
func (t *table) look(schema json.RawMessage, above []string) outline {
	var s outline
	if t.looks++; t.looks > mostLooks || !isObject(schema) {
		return s
	}
	_ = json.Unmarshal(schema, &s) // what has another type has no meaning in a schema
	s.above = above
	if s.Reference == "" {
		return s
	}
	if slices.Contains(above, s.Reference) {
		s.again = s.Reference
		return s
	}
	target := t.look(t.at(s.Reference), append(slices.Clone(above), s.Reference))
	target.Text = cmp.Or(s.Text, target.Text)
	return target
}

// at returns the schema at a JSON Pointer; nil if there is none.
func (t *table) at(reference string) json.RawMessage {
	text := t.root
	pointer, _ := url.PathUnescape(strings.TrimPrefix(reference, "#"))
	for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if name == "" {
			continue
		}
		var object map[string]json.RawMessage
		_ = json.Unmarshal(text, &object)
		text = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]
	}
	return text
}

// below adds the fields below a place.
func (t *table) below(path string, s outline) {
	if s.again != "" || len(t.fields) > mostFields {
		return
	}
	if isObject(s.Properties) {
		members, _ := membersOf(s.Properties)
		for _, m := range members {
			t.add(join(path, m.name), m.value.(json.RawMessage), slices.Contains(s.Required, m.name), s.above)
		}
	}
	if isObject(s.Others) {
		t.add(join(path, "*"), s.Others, false, s.above)
	}
	if isObject(s.Items) {
		t.below(path+"[]", t.look(s.Items, s.above))
	}
	for _, variants := range [][]json.RawMessage{s.AllOf, s.AnyOf, s.OneOf} {
		for _, v := range variants {
			t.below(path, t.look(v, s.above))
		}
	}
}

// add adds the field at a place and those below it.
func (t *table) add(path string, schema json.RawMessage, required bool, above []string) {
	s := t.look(schema, above)
	t.fields = append(t.fields, Field{Path: path, Type: t.typeOf(s), Required: required, Text: s.Text})
	t.below(path, s)
}

// typeOf says what a value can be.
func (t *table) typeOf(s outline) string {
	if s.again != "" {
		_, name, _ := strings.Cut(s.again, "/$defs/")
		return cmp.Or(name, "payload") + ", as above"
	}
	var values []string
	for _, v := range s.Enum {
		values = append(values, string(v))
	}
	if len(s.Const) > 0 {
		values = []string{string(s.Const)}
	}
	if len(values) > 0 {
		return strings.Join(values, " or ")
	}
	var types []string
	if err := json.Unmarshal(s.Type, &types); err != nil {
		var one string
		if json.Unmarshal(s.Type, &one) == nil {
			types = []string{one}
		}
	}
	for i, name := range types {
		switch {
		case name == "array" && isObject(s.Items):
			types[i] = "array of " + t.typeOf(t.look(s.Items, s.above))
		case name == "string" && cmp.Or(s.Format, s.Encoding) != "":
			types[i] = "string (" + cmp.Or(s.Format, s.Encoding) + ")"
		}
	}
	for _, variants := range [][]json.RawMessage{s.AnyOf, s.OneOf, s.AllOf} {
		for _, v := range variants {
			if name := t.typeOf(t.look(v, s.above)); !slices.Contains(types, name) && len(s.Type) == 0 {
				types = append(types, name)
			}
		}
	}
	return cmp.Or(strings.Join(types, " or "), "anything")
}
