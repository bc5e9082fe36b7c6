package encoding

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
)

// DeriveAvro makes a schema in Avro of the JSON Schema (2020-12) of a notification type. For the same schema
// the text is the same, byte for byte.
//
//   - An object is a record. Its name is that of the type, such as order.placed. Records and enums inside are
//     named by the way to them in the payload: placed_address for the property address, placed_lines_item for
//     the items of the property lines, placed_prices_value for the values of a map. If two ways make the same
//     name, such as a_b and b in a, the second has "_" at its end. Fields are in alphabetical order. They must
//     have names that Avro permits.
//   - A $ref is what it refers to, again in each place. Names in $defs do not matter, so Go types can be
//     renamed. In itself, an object is the name of its record.
//   - An object without properties and with additionalProperties is a map.
//   - A property that is not required may be null, and is null by default.
//   - An integer is a long, or an int if minimum and maximum are in its range. A number is a double.
//   - A string is a string, also if it has a format: a timestamp would lose the offset of a date-time, and
//     all digits after the microseconds. With contentEncoding: base64 it is bytes.
//   - An enum of texts that are legal symbols is an enum, and otherwise a string.
//   - anyOf and oneOf are unions, if JSON can tell their branches apart: not two objects, for example.
//
// Limits such as maxLength and pattern are not in the schema. Its errors join everything that Avro cannot
// express, such as values of any type; such a type needs a given schema in Avro. So does one with more than
// 1,000 records, enums and references.
func DeriveAvro(typ, jsonSchema string) (string, error) {
	decoder := json.NewDecoder(strings.NewReader(jsonSchema))
	decoder.UseNumber()
	d := &deriver{taken: make(map[string]bool), above: make(map[string]string), refs: make(map[string]int)}
	if err := decoder.Decode(&d.root); err != nil {
		return "", fmt.Errorf("the JSON Schema: %w", err)
	}
	parts := strings.Split(typ, ".")
	for i, part := range parts {
		parts[i] = legalName(part)
	}
	d.namespace = strings.Join(parts[:len(parts)-1], ".")
	derived := d.reference("", "#", parts[len(parts)-1])
	if len(d.mistakes) > 0 {
		return "", errors.Join(d.mistakes...)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(union(derived, admitsNull(d.root, d.root, 0))); err != nil {
		return "", err
	}
	return strings.TrimSpace(text.String()), nil
}

// deriver makes types of Avro. They are values that become JSON: the name of a type, a list of branches, or
// one of the structs below.
type deriver struct {
	root      any
	namespace string
	taken     map[string]bool   // names of records and enums
	above     map[string]string // the names of the records that are being made, by their places
	refs      map[string]int    // the references that are being followed, with len(above) and 1 when that began
	expanded  int
	mistakes  []error
}

type derivedRecord struct {
	Type      string         `json:"type"`
	Name      string         `json:"name"`
	Namespace string         `json:"namespace,omitempty"`
	Fields    []derivedField `json:"fields"`
}

type derivedField struct {
	Name    string           `json:"name"`
	Type    any              `json:"type"`
	Default *json.RawMessage `json:"default,omitempty"`
}

type derivedEnum struct {
	Type      string   `json:"type"`
	Name      string   `json:"name"`
	Namespace string   `json:"namespace,omitempty"`
	Symbols   []string `json:"symbols"`
}

type derivedItems struct {
	Type   string `json:"type"`
	Items  any    `json:"items,omitempty"`
	Values any    `json:"values,omitempty"`
}

var legal = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// legalName replaces what a name in Avro cannot have.
func legalName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '_'
	}, name)
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		return "_" + name
	}
	return name
}

func object(v any) map[string]any {
	o, _ := v.(map[string]any)
	return o
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// mistake notes what Avro cannot express, and where the JSON Schema has it.
func (d *deriver) mistake(where, format string, a ...any) []any {
	if where == "" {
		where = "the schema"
	}
	err := fmt.Errorf("%s %s; give the type a schema with avro: in types", where, fmt.Sprintf(format, a...))
	if !slices.ContainsFunc(d.mistakes, func(known error) bool { return known.Error() == err.Error() }) {
		d.mistakes = append(d.mistakes, err)
	}
	return nil
}

// maxExpanded bounds the schema, because a $ref may be expanded in many places.
const maxExpanded = 1000

// expand counts a record, an enum or a reference. It returns false if there are too many.
func (d *deriver) expand() bool {
	if d.expanded++; d.expanded > maxExpanded {
		d.mistake("", "has more than %d records, enums and references after each $ref is replaced by what it refers to", maxExpanded)
	}
	return d.expanded <= maxExpanded
}

// define returns the name for a record or an enum, which is none that another has.
func (d *deriver) define(name string) string {
	for d.taken[name] {
		name += "_"
	}
	d.taken[name] = true
	return name
}

// reference returns the branches of what a $ref refers to.
func (d *deriver) reference(where, ref, name string) []any {
	target, found := resolve(d.root, ref)
	if !found {
		return d.mistake(where, "refers to %s, and only # and what is in #/$defs can be derived", ref)
	}
	outer, now := d.refs[ref], len(d.above)+1
	if outer == now {
		return d.mistake(where, "refers to itself without an object in between")
	}
	if !d.expand() {
		return nil
	}
	d.refs[ref] = now
	defer func() { d.refs[ref] = outer }()
	return d.branches(strings.TrimPrefix(ref, "#"), target, name)
}

// resolve returns what a reference refers to.
func resolve(root any, ref string) (any, bool) {
	if ref == "#" {
		return root, true
	}
	parts := strings.Split(ref, "/")
	if len(parts) != 3 || parts[0] != "#" || parts[1] != "$defs" && parts[1] != "definitions" {
		return nil, false
	}
	target, found := object(object(root)[parts[1]])[strings.NewReplacer("~1", "/", "~0", "~").Replace(parts[2])]
	return target, found
}

// maxRefs bounds chains of references.
const maxRefs = 50

// admitsNull reports whether null is valid.
func admitsNull(root, schema any, depth int) bool {
	s := object(schema)
	null := func(v any) bool { return v == nil }
	within := func(v any) bool { return depth < maxRefs && admitsNull(root, v, depth+1) }
	value, isConst := s["const"]
	ref, isRef := s["$ref"].(string)
	switch {
	case isConst:
		return value == nil
	case s["enum"] != nil:
		return slices.ContainsFunc(list(s["enum"]), null)
	case isRef:
		target, found := resolve(root, ref)
		return found && within(target)
	case s["type"] != nil:
		return s["type"] == "null" || slices.Contains(list(s["type"]), any("null"))
	}
	return slices.ContainsFunc(slices.Concat(list(s["anyOf"]), list(s["oneOf"]), list(s["allOf"])), within)
}

// union returns the type with these branches, and null if it is possible.
func union(branches []any, null bool) any {
	if null {
		branches = append([]any{"null"}, branches...)
	}
	if len(branches) == 1 {
		return branches[0]
	}
	return branches
}

// typeOf returns the type of a schema.
func (d *deriver) typeOf(where string, schema any, name string, optional bool) any {
	branches := d.branches(where, schema, name)
	if len(d.mistakes) > 0 {
		return nil
	}
	return union(branches, optional || admitsNull(d.root, schema, 0))
}

// structural are the keywords that say what a value consists of. Others only restrict it.
var structural = []string{"properties", "patternProperties", "additionalProperties", "items", "prefixItems", "allOf", "anyOf", "oneOf", "$ref"}

func has(schema any, keywords ...string) bool {
	return slices.ContainsFunc(keywords, func(k string) bool { return object(schema)[k] != nil })
}

// branches returns what values of a schema can be, besides null. where is the schema's place in the JSON Schema;
// name is for a record or an enum.
func (d *deriver) branches(where string, schema any, name string) []any {
	s := object(schema)
	if s == nil {
		return d.mistake(where, "can be any value")
	}
	if target, ok := s["$ref"].(string); ok {
		if has(s, slices.DeleteFunc(slices.Clone(structural), func(k string) bool { return k == "$ref" })...) {
			return d.mistake(where, "extends what it refers to, which Avro cannot")
		}
		return d.reference(where, target, name)
	}
	if value, ok := s["const"]; ok {
		return d.enum([]any{value}, s, where, name)
	}
	if values := list(s["enum"]); values != nil {
		return d.enum(values, s, where, name)
	}
	if s["type"] != nil || has(s, "properties", "items") {
		for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
			for i, part := range list(s[keyword]) {
				if has(part, structural...) {
					return d.mistake(fmt.Sprintf("%s/%s/%d", where, keyword, i), "extends an object, which Avro cannot")
				}
			}
		}
		return d.typed(where, s, name)
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		parts := list(s[keyword])
		if keyword == "allOf" && len(parts) > 1 {
			return d.mistake(where, "combines schemas with allOf, which Avro cannot")
		}
		if len(parts) > 0 {
			return d.alternatives(where+"/"+keyword, parts, name)
		}
	}
	return d.mistake(where, "can be any value")
}

// alternatives returns the branches of anyOf or oneOf.
func (d *deriver) alternatives(where string, parts []any, name string) (all []any) {
	for i, part := range parts {
		if object(part)["type"] != "null" {
			all = append(all, d.branches(fmt.Sprintf("%s/%d", where, i), part, name)...)
		}
	}
	return d.distinct(where, all)
}

// distinct refuses branches that a reader of JSON could not tell apart, and drops repetitions.
func (d *deriver) distinct(where string, branches []any) []any {
	var kept []any
	seen := make(map[string]bool)
	for _, branch := range branches {
		kind, isName := branch.(string)
		if isName && slices.Contains(kept, branch) {
			continue
		}
		switch branch := branch.(type) {
		case derivedRecord:
			kind = "object"
		case derivedEnum:
			kind = "string"
		case derivedItems:
			kind = map[string]string{"array": "array", "map": "object"}[branch.Type]
		case string:
			switch branch {
			case "bytes":
				kind = "string"
			case "boolean", "int", "long", "double", "string":
			default: // the name of a record
				kind = "object"
			}
		}
		if seen[kind] {
			return d.mistake(where, "has several alternatives that are each %s", map[string]string{"object": "an object", "array": "an array", "string": "a string"}[kind])
		}
		seen[kind] = true
		kept = append(kept, branch)
	}
	return kept
}

// enum returns the branches of a list of values.
func (d *deriver) enum(values []any, s map[string]any, where, name string) []any {
	var symbols []string
	kinds := make(map[string]bool)
	for _, v := range values {
		switch v := v.(type) {
		case string:
			symbols = append(symbols, v)
			kinds["string"] = true
		case bool:
			kinds["boolean"] = true
		case json.Number:
			if _, whole := toInteger(v.String()); whole {
				kinds["integer"] = true
			} else {
				kinds["number"] = true
			}
		case nil:
		default:
			return d.mistake(where, "is one of several objects or arrays")
		}
	}
	if len(kinds) == 1 && len(symbols) > 0 && s["contentEncoding"] == nil && areSymbols(symbols) {
		if !d.expand() {
			return nil
		}
		return []any{derivedEnum{"enum", d.define(name), d.namespace, symbols}}
	}
	var branches []any
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		branches = append(branches, d.simple(kind, s))
	}
	return branches
}

func areSymbols(texts []string) bool {
	seen := make(map[string]bool, len(texts))
	for _, text := range texts {
		if seen[text] || !legal.MatchString(text) {
			return false
		}
		seen[text] = true
	}
	return true
}

// typed returns the branches of a schema with types.
func (d *deriver) typed(where string, s map[string]any, name string) (all []any) {
	types := list(s["type"])
	switch one, ok := s["type"].(string); {
	case ok:
		types = []any{one}
	case types == nil && has(s, "properties"):
		types = []any{"object"}
	case types == nil:
		types = []any{"array"}
	}
	for _, typ := range types {
		switch typ {
		case "null":
		case "object":
			all = append(all, d.objectOf(where, s, name)...)
		case "array":
			switch {
			case has(s, "prefixItems"):
				return d.mistake(where, "has items of different types by their places")
			case s["items"] == nil:
				return d.mistake(where+"/items", "can be any value")
			}
			all = append(all, derivedItems{Type: "array", Items: d.typeOf(where+"/items", s["items"], name+"_item", false)})
		case "string", "boolean", "integer", "number":
			all = append(all, d.simple(typ.(string), s))
		default:
			return d.mistake(where, "has the type %v, which is unknown", typ)
		}
	}
	return d.distinct(where, all)
}

// simple returns the type for a simple type of JSON.
func (d *deriver) simple(typ string, s map[string]any) any {
	switch {
	case typ == "string" && s["contentEncoding"] == "base64":
		return "bytes"
	case typ == "number":
		return "double"
	case typ == "integer" && bounded(s):
		return "int"
	case typ == "integer":
		return "long"
	}
	return typ
}

// bounded reports whether all values are in the range of int.
func bounded(s map[string]any) bool {
	within := func(keys ...string) bool {
		return slices.ContainsFunc(keys, func(key string) bool {
			n, ok := s[key].(json.Number)
			if !ok {
				return false
			}
			limit, ok := toInteger(n.String())
			return ok && limit >= math.MinInt32 && limit <= math.MaxInt32
		})
	}
	return within("minimum", "exclusiveMinimum") && within("maximum", "exclusiveMaximum")
}

// objectOf returns the record or the map for an object.
func (d *deriver) objectOf(where string, s map[string]any, name string) []any {
	properties := object(s["properties"])
	more, closed := s["additionalProperties"], s["additionalProperties"] == false
	switch {
	case has(s, "patternProperties"):
		return d.mistake(where+"/patternProperties", "has properties by patterns of their names")
	case len(properties) == 0 && object(more) != nil:
		return []any{derivedItems{Type: "map", Values: d.typeOf(where+"/additionalProperties", more, name+"_value", false)}}
	case len(properties) == 0 && !closed:
		return d.mistake(where, "can be any object")
	case object(more) != nil:
		return d.mistake(where+"/additionalProperties", "has values beside the properties, and a record has only fields")
	}
	if above := d.above[where]; above != "" {
		return []any{fullName(above, d.namespace)}
	}
	if !d.expand() {
		return nil
	}
	name = d.define(name)
	d.above[where] = name
	defer delete(d.above, where)
	record := derivedRecord{Type: "record", Name: name, Namespace: d.namespace, Fields: []derivedField{}}
	null := json.RawMessage("null")
	for _, property := range slices.Sorted(maps.Keys(properties)) {
		place := where + "/properties/" + pointerEscapes.Replace(property)
		if !legal.MatchString(property) {
			d.mistake(place, "cannot be the name of a field in Avro, which has letters a to z, digits and _")
			continue
		}
		optional := !slices.Contains(list(s["required"]), any(property))
		field := derivedField{Name: property, Type: d.typeOf(place, properties[property], name+"_"+property, optional)}
		if optional {
			field.Default = &null
		}
		record.Fields = append(record.Fields, field)
	}
	return []any{record}
}
