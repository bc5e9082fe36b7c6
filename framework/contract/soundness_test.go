package contract_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/contract"
)

type object = map[string]any

// schemas draws a schema.
func schemas(t *rapid.T, depth int) object {
	kinds := []string{"integer", "number", "string", "enum", "const", "boolean", "null"}
	if depth > 0 {
		kinds = append(kinds, "object", "object", "array", "map", "anyOf", "ref", "union", "allOf")
	}
	switch kind := rapid.SampledFrom(kinds).Draw(t, "kind"); kind {
	case "integer", "number":
		s := object{"type": kind}
		if rapid.Bool().Draw(t, "bounded") {
			s["minimum"], s["maximum"] = rapid.IntRange(-3, 0).Draw(t, "minimum"), rapid.IntRange(0, 3).Draw(t, "maximum")
		}
		return s
	case "string":
		s := object{"type": "string"}
		if rapid.Bool().Draw(t, "bounded") {
			s["maxLength"] = rapid.IntRange(1, 3).Draw(t, "maxLength")
		}
		return s
	case "enum":
		return object{"enum": rapid.SampledFrom([][]any{{"a"}, {"a", "b"}, {"a", 1}, {"b", nil}}).Draw(t, "values")}
	case "const":
		return object{"const": rapid.SampledFrom([]any{"a", 1, nil}).Draw(t, "value")}
	case "object":
		properties, required := object{}, []any{}
		for _, name := range []string{"x", "y"} {
			if rapid.Bool().Draw(t, "has") {
				properties[name] = schemas(t, depth-1)
				if rapid.Bool().Draw(t, "required") {
					required = append(required, name)
				}
			}
		}
		s := object{"type": "object", "properties": properties, "required": required}
		if rapid.Bool().Draw(t, "closed") {
			s["additionalProperties"] = false
		}
		return s
	case "array":
		s := object{"type": "array", "items": schemas(t, depth-1)}
		if rapid.Bool().Draw(t, "bounded") {
			s["maxItems"] = rapid.IntRange(0, 2).Draw(t, "maxItems")
		}
		return s
	case "map":
		return object{"type": "object", "additionalProperties": schemas(t, depth-1)}
	case "anyOf":
		return object{"anyOf": []any{schemas(t, depth-1), schemas(t, depth-1)}}
	case "union":
		return object{"type": []any{"string", "integer"}}
	case "ref":
		return object{"$ref": "#/$defs/" + rapid.SampledFrom([]string{"one", "two"}).Draw(t, "ref")}
	case "allOf":
		return object{"allOf": []any{
			object{"type": "object", "properties": object{"x": schemas(t, depth-1)}}, object{"properties": object{"y": schemas(t, depth-1)}, "required": []any{"y"}},
		}}
	default:
		return object{"type": kind}
	}
}

// values draws a value that a publisher with a schema writes: only fields that the schema has.
func values(t *rapid.T, s, defs object, depth int) any {
	if depth < 0 {
		return nil
	}
	if ref, ok := s["$ref"].(string); ok {
		return values(t, defs[ref[len("#/$defs/"):]].(object), defs, depth-1)
	}
	if all, ok := s["allOf"].([]any); ok {
		first, second := all[0].(object), all[1].(object)
		return object{
			"x": values(t, first["properties"].(object)["x"].(object), defs, depth-1),
			"y": values(t, second["properties"].(object)["y"].(object), defs, depth-1),
		}
	}
	if branches, ok := s["anyOf"].([]any); ok {
		return values(t, rapid.SampledFrom(branches).Draw(t, "branch").(object), defs, depth-1)
	}
	if all, ok := s["enum"].([]any); ok {
		return rapid.SampledFrom(all).Draw(t, "value")
	}
	if value, ok := s["const"]; ok {
		return value
	}
	kind, _ := s["type"].(string)
	switch kind {
	case "":
		return rapid.SampledFrom([]any{"a", 7}).Draw(t, "value")
	case "integer":
		return rapid.IntRange(-4, 4).Draw(t, "value")
	case "number":
		return rapid.SampledFrom([]any{-4, -1.5, 0, 2.5, 4}).Draw(t, "value")
	case "string":
		return rapid.SampledFrom([]any{"", "a", "bb", "cccc"}).Draw(t, "value")
	case "boolean":
		return true
	case "array":
		all := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			all = append(all, values(t, s["items"].(object), defs, depth-1))
		}
		return all
	case "object":
		value := object{}
		properties, _ := s["properties"].(object)
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			of := properties[name]
			if rapid.Bool().Draw(t, "given") {
				value[name] = values(t, of.(object), defs, depth-1)
			}
		}
		if of, ok := s["additionalProperties"].(object); ok && rapid.Bool().Draw(t, "given") {
			value[rapid.SampledFrom([]string{"x", "z"}).Draw(t, "name")] = values(t, of, defs, depth-1)
		}
		return value
	}
	return nil
}

// set returns the contracts that have a schema. It leaves out one that only refers to itself, of which no value could be
// said to fit.
func set(t *rapid.T, schema object) *contract.Set {
	text, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	all := new(contract.Set)
	switch err := all.Add(contract.About{Type: "t", Version: 1}, text); {
	case err != nil && strings.Contains(err.Error(), "only refers to itself"):
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	return all
}

// If nothing breaks, the reader accepts whatever a publisher writes. The rules may break more than must.
func TestWhatBreaksNothingIsReadByConsumers(t *testing.T) {
	t.Parallel()
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		defs := func() object { return object{"one": schemas(t, 1), "two": schemas(t, 0)} }
		before, after := schemas(t, 3), schemas(t, 3)
		before["$defs"] = defs()
		after["$defs"] = before["$defs"]
		if rapid.Bool().Draw(t, "other definitions") {
			after["$defs"] = defs()
		}
		if rapid.Bool().Draw(t, "one change") { // two random schemas are rarely compatible
			text, _ := json.Marshal(before)
			after = object{}
			_ = json.Unmarshal(text, &after)
			change(t, after)
		}
		old, next := set(t, before), set(t, after)
		check := func(keep contract.Compatibility, writes object, writer, reader *contract.Set) {
			breaks := contract.Compare(old, next, keep)
			payload, _ := json.Marshal(values(t, writes, writes["$defs"].(object), 8))
			if len(breaks) > 0 || writer.Validate("t", 1, payload) != nil {
				return
			}
			accepted++
			if err := reader.Validate("t", 1, payload); err != nil {
				t.Fatalf("%s: nothing breaks, but %s: %v\nbefore %s\nafter %s", keep, payload, err, old.All()[0].Text, next.All()[0].Text)
			}
		}
		check(contract.Forward, after, next, old)
		check(contract.Backward, before, old, next)
		if breaks := contract.Compare(old, old, contract.Full); len(breaks) > 0 {
			t.Fatalf("nothing has changed: %v\n%s", breaks, old.All()[0].Text)
		}
	})
	if accepted == 0 {
		t.Error("no change was compatible")
	}
}

func TestWhatIsRecognizedQuicklyFits(t *testing.T) {
	t.Parallel()
	recognized, fit := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s, other := schemas(t, 3), schemas(t, 3)
		s["$defs"] = object{"one": schemas(t, 1), "two": object{"type": "string", "format": "date-time"}}
		set := set(t, s)
		for _, of := range []object{s, other} {
			payload, _ := json.Marshal(values(t, of, s["$defs"].(object), 8))
			payload = append(payload, rapid.SampledFrom([]string{"", " ", "x", "}"}).Draw(t, "rest")...)
			quickly, accepted := contract.Recognizes(set.All()[0], payload)
			if quickly && !accepted {
				t.Fatalf("%s does not fit %s", payload, set.All()[0].Text)
			}
			if accepted {
				fit++
			}
			if quickly {
				recognized++
			}
		}
	})
	if recognized < fit/3 {
		t.Errorf("of %d payloads that fit, %d are recognized", fit, recognized)
	}
}

func TestOddPayloadsAreNotRecognizedByMistake(t *testing.T) {
	t.Parallel()
	for schema, payloads := range map[string][]string{
		`{"type": "integer"}`:                             {`1.0`, `1e2`, `1.5`, `01`, `+1`, `NaN`, `9223372036854775808`, `-`, `1 2`},
		`{"type": "number", "minimum": 0, "maximum": 10}`: {`-1`, `10.5`, `11`, `99999999999999999999`, `"5"`},
		`{"type": "string", "maxLength": 2}`:              {`"ößü"`, `"\u00"`, "\"a\x01\"", `"\ud800"`, "\"a\x01\\n\"", `'a'`, `"abc"`},
		`{"enum": ["a", 1, null]}`:                        {`"b"`, `1`, `null`, `2`, `["a"]`, `{}`},
		`{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}`: {
			`{"a": 1, "a": "x"}`, `{"a": "x", "a": 1}`, `{"b": 1}`, `{"\u0061": "x"}`, `{"a": 1,}`, `{a: 1}`, `[]`, `{"a": 1}}`, ``,
		},
		`{"type": "string", "format": "date-time"}`:       {`"2026-02-30T00:00:00Z"`, `"yesterday"`, `7`},
		`{"type": "string", "contentEncoding": "base64"}`: {`"###"`, `"YQ"`},
		`{"anyOf": [{"type": "string"}, {"minimum": 3}]}`: {`2`, `4`, `true`, `"a"`},
		`{"not": {}}`: {`1`}, `{"properties": {"a": false}}`: {`{"a": 1}`}, `{"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]}`: {`[1]`},
	} {
		set := new(contract.Set)
		require.NoError(t, set.Add(contract.About{Type: "t", Version: 1}, []byte(schema)))
		for _, payload := range payloads {
			if quickly, accepted := contract.Recognizes(set.All()[0], []byte(payload)); quickly {
				require.True(t, accepted, "%s by %s", payload, schema)
			}
		}
	}
}

// change changes one thing somewhere in a schema.
func change(t *rapid.T, s object) {
	var places []func()
	var find func(s object)
	find = func(s object) {
		for _, name := range slices.Sorted(maps.Keys(s)) {
			value := s[name]
			switch name {
			case "minimum", "maximum", "maxLength", "maxItems", "additionalProperties":
				places = append(places, func() { delete(s, name) })
			case "type":
				if _, one := value.(string); one && value != "null" {
					places = append(places, func() { s["type"] = []any{value, "null"} })
				}
				if value == "integer" {
					places = append(places, func() { s["type"] = "number" })
				}
			case "required":
				places = append(places, func() { s["required"] = []any{} })
			case "enum":
				places = append(places, func() { s["enum"] = value.([]any)[:1] }, func() { s["enum"] = append(value.([]any), "c") })
			case "properties", "$defs":
				for _, field := range slices.Sorted(maps.Keys(value.(object))) {
					of := value.(object)[field]
					if name == "properties" {
						places = append(places, func() { delete(value.(object), field) })
					}
					find(of.(object))
				}
			case "anyOf":
				if len(value.([]any)) > 1 {
					places = append(places, func() { s["anyOf"] = value.([]any)[1:] })
				}
			}
			if of, ok := value.(object); ok && (name == "items" || name == "additionalProperties") {
				find(of)
			}
		}
	}
	find(s)
	if len(places) > 0 {
		places[rapid.IntRange(0, len(places)-1).Draw(t, "place")]()
	}
}
