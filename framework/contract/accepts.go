package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strings"
)

// acceptsAny requires that one of the reader's alternatives accepts what is written. It reports the breaks
// of the alternative that is closest.
func (c *comparison) acceptsAny(branches []map[string]any, writer map[string]any, field string) {
	var closest []Break
	var all []any
	for _, branch := range branches {
		all = append(all, typesOf(branch)...)
		if !overlap(typesOf(branch), typesOf(writer)) {
			continue
		}
		try := *c
		try.breaks, try.seen = nil, maps.Clone(c.seen)
		try.accepts(branch, writer, field)
		if len(try.breaks) == 0 {
			return
		}
		if closest == nil || len(try.breaks) < len(closest) {
			closest = try.breaks
		}
	}
	if closest == nil {
		c.acceptsTypes(map[string]any{"type": all}, writer, field)
	}
	c.breaks = append(c.breaks, closest...)
}

// acceptsTypes reports other types, and returns whether there are none.
func (c *comparison) acceptsTypes(reader, writer map[string]any, field string) bool {
	may, can := typesOf(reader), typesOf(writer)
	if may == nil {
		return true
	}
	other := slices.DeleteFunc(slices.Clone(can), func(t any) bool {
		return slices.Contains(may, t) || t == "integer" && slices.Contains(may, any("number"))
	})
	switch {
	case can == nil:
		other = []any{"anything"}
	case len(other) == 0:
		return true
	}
	c.report(field,
		fmt.Sprintf("may now be %s: %s expect %s", list(other, "or"), c.consumers(), list(may, "or")),
		fmt.Sprintf("may no longer be %s: %s may have it", list(other, "or"), c.rows()))
	return false
}

// acceptsValues compares enum and const.
func (c *comparison) acceptsValues(reader, writer map[string]any, field string) {
	may, limited := valuesOf(reader)
	if !limited {
		return
	}
	can, ok := valuesOf(writer)
	if !ok {
		c.report(field,
			fmt.Sprintf("may now have any value: %s expect one of %s", c.consumers(), list(may, "and")),
			fmt.Sprintf("may now only be one of %s: %s may have others", list(may, "and"), c.rows()))
		return
	}
	other := slices.DeleteFunc(slices.Clone(can), func(v any) bool {
		return slices.ContainsFunc(may, func(m any) bool { return reflect.DeepEqual(m, v) })
	})
	if len(other) > 0 {
		c.report(field,
			fmt.Sprintf("may now be %s: %s expect one of %s", list(other, "or"), c.consumers(), list(may, "and")),
			fmt.Sprintf("may no longer be %s: %s may have it", list(other, "or"), c.rows()))
	}
}

// limit is a keyword that bounds values of a type; lower ones are bounded from below.
type limit struct {
	keyword, of string
	lower       bool
}

var limits = []limit{
	{"minimum", "number", true}, {"exclusiveMinimum", "number", true}, {"maximum", "number", false}, {"exclusiveMaximum", "number", false},
	{"minLength", "string", true}, {"maxLength", "string", false},
	{"minItems", "array", true}, {"maxItems", "array", false},
	{"minProperties", "object", true}, {"maxProperties", "object", false},
}

// acceptsLimits compares bounds.
func (c *comparison) acceptsLimits(reader, writer map[string]any, field string) {
	for _, l := range limits {
		bound, ok := numberOf(reader[l.keyword])
		if !ok || !canBe(writer, l.of) {
			continue
		}
		other, has := numberOf(writer[l.keyword])
		if has && (other.Cmp(bound) == 0 || (other.Cmp(bound) > 0) == l.lower) {
			continue
		}
		now := "has none"
		if has {
			now = "is " + fmt.Sprint(writer[l.keyword])
		}
		c.report(field,
			fmt.Sprintf("has had %s %v, which now %s: %s rely on it", l.keyword, reader[l.keyword], now, c.consumers()),
			fmt.Sprintf("now has %s %v: %s may exceed it", l.keyword, reader[l.keyword], c.rows()))
	}
}

// alike are the keywords that must stay alike if the reader has them, since it is not known what else they
// accept, with the type that they apply to; "" means all.
var alike = []struct{ keyword, of string }{
	{"format", "string"}, {"pattern", "string"}, {"contentEncoding", "string"}, {"contentMediaType", "string"}, {"contentSchema", "string"},
	{"multipleOf", "number"},
	{"uniqueItems", "array"}, {"prefixItems", "array"}, {"contains", "array"}, {"minContains", "array"}, {"maxContains", "array"}, {"unevaluatedItems", "array"},
	{"patternProperties", "object"}, {"propertyNames", "object"}, {"dependentRequired", "object"}, {"dependentSchemas", "object"}, {"unevaluatedProperties", "object"},
	{"not", ""}, {"if", ""}, {"then", ""}, {"else", ""}, {"$ref", ""}, {"$dynamicRef", ""},
}

func (c *comparison) acceptsKeywords(reader, writer map[string]any, field string) {
	for _, k := range alike {
		before, ok := reader[k.keyword]
		if !ok || k.of != "" && !canBe(writer, k.of) || reflect.DeepEqual(meaning(before), meaning(writer[k.keyword])) {
			continue
		}
		value := k.keyword
		switch before.(type) {
		case string, json.Number:
			value = fmt.Sprintf("%s %v", k.keyword, before)
		}
		c.report(field,
			fmt.Sprintf("no longer has %s: %s rely on it", value, c.consumers()),
			fmt.Sprintf("now has %s: %s may not fit", value, c.rows()))
	}
}

// acceptsFields compares the fields of objects.
func (c *comparison) acceptsFields(reader, writer map[string]any, field string) {
	if !canBe(writer, "object") {
		return
	}
	may, can := objectOf(reader["properties"]), objectOf(writer["properties"])
	required, given := textsOf(reader["required"]), textsOf(writer["required"])
	for _, name := range slices.Sorted(maps.Keys(may)) {
		at := join(field, name)
		value, has := can[name]
		if rest, ok := writer["additionalProperties"]; !has && ok && rest != false {
			value, has = rest, true
		}
		isRequired := slices.Contains(required, name)
		switch {
		case !has && isRequired:
			c.report(at, "was removed: "+c.consumers()+" read it", "is new and required: "+c.rows()+" lack it")
			continue
		case isRequired && !slices.Contains(given, name):
			c.report(at, "may now be left out: "+c.consumers()+" read it", "is now required: "+c.rows()+" may lack it")
		}
		if has {
			c.accepts(may[name], value, at)
		}
	}
	for _, name := range required {
		if _, declared := may[name]; !declared && !slices.Contains(given, name) {
			c.report(join(field, name), "was removed: "+c.consumers()+" read it", "is new and required: "+c.rows()+" lack it")
		}
	}
	rest, closed := reader["additionalProperties"]
	if !closed || rest == true {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(can)) {
		if _, declared := may[name]; !declared {
			c.accepts(rest, can[name], join(field, name))
		}
	}
	others, ok := writer["additionalProperties"]
	if !ok {
		others = true
	}
	if _, open := writer["additionalProperties"]; !open && rest != false && writer["properties"] != nil {
		return // a publisher writes no other fields than its own
	}
	if rest == false && others != false {
		c.report(field, "may now have other fields: "+c.consumers()+" refuse them", "may no longer have other fields: "+c.rows()+" may have them")
		return
	}
	c.accepts(rest, others, join(field, "*"))
}

// acceptsItems compares the items of arrays.
func (c *comparison) acceptsItems(reader, writer map[string]any, field string) {
	items, ok := reader["items"]
	if !ok || !canBe(writer, "array") {
		return
	}
	others, ok := writer["items"]
	if !ok {
		others = true
	}
	c.accepts(items, others, field+"[]")
}

// place is a part of a schema: an alternative, or the whole, which is -1.
type place struct {
	schema uintptr
	part   int
}

// object returns a schema as an object, with what it refers to; nil for false.
func (c *comparison) object(schema any, document map[string]any) map[string]any {
	s, ok := schema.(map[string]any)
	if !ok {
		if schema == false {
			return nil
		}
		s = map[string]any{}
	}
	if s["$ref"] == nil && s["allOf"] == nil {
		return s
	}
	at := place{reflect.ValueOf(s).Pointer(), -1}
	if known, ok := c.merged[at]; ok {
		return known
	}
	whole := maps.Clone(s)
	c.merged[at] = whole // ends a recursion
	if target, ok := resolve(text(s["$ref"]), document); ok {
		if len(s) == 1 {
			c.merged[at] = c.object(target, document) // the same for all who refer to it
			return c.merged[at]
		}
		delete(whole, "$ref")
		merge(whole, c.object(target, document))
	}
	all, _ := s["allOf"].([]any)
	delete(whole, "allOf")
	for _, part := range all {
		merge(whole, c.object(part, document))
	}
	return whole
}

// resolve returns what a reference within a document refers to.
func resolve(ref string, document map[string]any) (any, bool) {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok || pointer != "" && pointer[0] != '/' {
		return nil, false
	}
	var at any = document
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if pointer == "" {
			break
		}
		object, isObject := at.(map[string]any)
		if !isObject {
			return nil, false
		}
		if at, ok = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(token)]; !ok {
			return nil, false
		}
	}
	return at, true
}

// branches returns the alternatives of a schema, each with what applies to all of them; nil if it has none.
func (c *comparison) branches(s, document map[string]any) (branches []map[string]any) {
	for _, keyword := range []string{"anyOf", "oneOf"} {
		alternatives, _ := s[keyword].([]any)
		for i, alternative := range alternatives {
			at := place{reflect.ValueOf(s).Pointer(), i}
			branch, known := c.merged[at]
			if !known {
				branch = maps.Clone(s)
				delete(branch, keyword)
				merge(branch, c.object(alternative, document))
				c.merged[at] = branch
			}
			branches = append(branches, branch)
		}
		if branches != nil {
			return branches
		}
	}
	return nil
}

// merge makes s a schema of the values that fit it and another one. What cannot be expressed as one keyword
// becomes a list of both, which is compared as a whole.
func merge(s, other map[string]any) {
	for name, value := range other {
		own, both := s[name]
		switch {
		case !both || reflect.DeepEqual(own, value):
			s[name] = value
		case name == "properties":
			all := maps.Clone(objectOf(own))
			for property, of := range objectOf(value) {
				if before, ok := all[property]; ok {
					of = map[string]any{"allOf": []any{before, of}}
				}
				all[property] = of
			}
			s[name] = all
		case name == "required":
			s[name] = slices.Concat(asList(own), asList(value))
		case name == "type", name == "enum":
			s[name] = intersection(asList(own), asList(value))
		case name == "items", name == "additionalProperties":
			s[name] = map[string]any{"allOf": []any{own, value}}
		case name == "anyOf", name == "oneOf":
			var pairs []any
			for _, a := range asList(own) {
				for _, b := range asList(value) {
					pairs = append(pairs, map[string]any{"allOf": []any{a, b}})
				}
			}
			s[name] = pairs
		case slices.ContainsFunc(limits, func(l limit) bool { return l.keyword == name }):
			s[name] = narrower(name, own, value)
		case slices.Contains(annotations, name):
			s[name] = value
		default:
			s[name] = []any{own, value}
		}
	}
}

func asList(v any) []any {
	if all, ok := v.([]any); ok {
		return all
	}
	return []any{v}
}

// intersection returns the values that are in both lists; an integer is a number.
func intersection(a, b []any) []any {
	both := []any{}
	for _, v := range a {
		for _, w := range b {
			switch {
			case reflect.DeepEqual(v, w), v == "integer" && w == "number":
				both = append(both, v)
			case v == "number" && w == "integer":
				both = append(both, w)
			}
		}
	}
	return both
}

// narrower returns the bound of two that fewer values keep.
func narrower(keyword string, a, b any) any {
	first, ok := numberOf(a)
	second, also := numberOf(b)
	lower := slices.ContainsFunc(limits, func(l limit) bool { return l.keyword == keyword && l.lower })
	if ok && also && (first.Cmp(second) > 0) == lower {
		return a
	}
	return b
}

// typesOf returns the types that a schema allows; nil for all.
func typesOf(s map[string]any) []any {
	switch t := s["type"].(type) {
	case string:
		return []any{t}
	case []any:
		return t
	}
	return nil
}

func overlap(a, b []any) bool {
	return a == nil || b == nil || slices.ContainsFunc(a, func(t any) bool {
		return slices.Contains(b, t) || t == "number" && slices.Contains(b, any("integer")) || t == "integer" && slices.Contains(b, any("number"))
	})
}

func canBe(s map[string]any, t string) bool { return overlap(typesOf(s), []any{t}) }

// valuesOf returns the only values that a schema allows.
func valuesOf(s map[string]any) ([]any, bool) {
	if value, ok := s["const"]; ok {
		return []any{value}, true
	}
	values, ok := s["enum"].([]any)
	return values, ok
}

func numberOf(v any) (*big.Rat, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return nil, false
	}
	return new(big.Rat).SetString(n.String())
}

func objectOf(v any) map[string]any {
	o, _ := v.(map[string]any)
	return o
}

func textsOf(v any) []string {
	var texts []string
	all, _ := v.([]any)
	for _, t := range all {
		texts = append(texts, text(t))
	}
	return texts
}

// list joins values as in a sentence.
func list(values []any, and string) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprint(v)
		if v == nil {
			texts[i] = "null"
		}
	}
	if last := len(texts) - 1; last > 0 {
		return strings.Join(texts[:last], ", ") + " " + and + " " + texts[last]
	}
	return strings.Join(texts, "")
}
