package encoding_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/twmb/avro"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/encoding"
)

func TestEachRuleOfTheDerivation(t *testing.T) {
	t.Parallel()
	record := func(fields string) string {
		return `{"type": "record", "name": "placed", "namespace": "order", "fields": [` + fields + `]}`
	}
	field := func(typ string) string { return record(`{"name": "a", "type": ` + typ + `}`) }
	property := func(schema string) string {
		return `{"type": "object", "required": ["a"], "properties": {"a": ` + schema + `}}`
	}
	for name, c := range map[string]struct{ schema, want string }{
		"an object is a record":              {`{"type": "object", "additionalProperties": false}`, record(``)},
		"a string":                           {property(`{"type": "string", "maxLength": 5, "pattern": "x"}`), field(`"string"`)},
		"a boolean":                          {property(`{"type": "boolean"}`), field(`"boolean"`)},
		"null":                               {property(`{"type": "null"}`), field(`"null"`)},
		"a number":                           {property(`{"type": "number", "minimum": 0}`), field(`"double"`)},
		"an integer":                         {property(`{"type": "integer"}`), field(`"long"`)},
		"an integer with one limit":          {property(`{"type": "integer", "minimum": 0}`), field(`"long"`)},
		"an integer in the range of int":     {property(`{"type": "integer", "minimum": -2147483648, "exclusiveMaximum": 2147483647}`), field(`"int"`)},
		"an integer beyond int":              {property(`{"type": "integer", "minimum": 0, "maximum": 2147483648}`), field(`"long"`)},
		"a date-time keeps its offset":       {property(`{"type": "string", "format": "date-time"}`), field(`"string"`)},
		"base64 is bytes":                    {property(`{"type": "string", "contentEncoding": "base64"}`), field(`"bytes"`)},
		"another encoding is a string":       {property(`{"type": "string", "contentEncoding": "base16"}`), field(`"string"`)},
		"an optional property may be null":   {`{"properties": {"a": {"type": "string"}}}`, record(`{"name": "a", "type": ["null", "string"], "default": null}`)},
		"a required one without default":     {property(`{"type": ["string", "null"]}`), field(`["null", "string"]`)},
		"nullable and optional":              {`{"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}`, record(`{"name": "a", "type": ["null", "string"], "default": null}`)},
		"null, optional":                     {`{"properties": {"a": {"type": "null"}}}`, record(`{"name": "a", "type": "null", "default": null}`)},
		"several types":                      {property(`{"type": ["integer", "string", "null"]}`), field(`["null", "long", "string"]`)},
		"an enum of legal symbols":           {property(`{"enum": ["NEW", "PAID"]}`), field(`{"type": "enum", "name": "placed_a", "namespace": "order", "symbols": ["NEW", "PAID"]}`)},
		"a const":                            {property(`{"const": "NEW"}`), field(`{"type": "enum", "name": "placed_a", "namespace": "order", "symbols": ["NEW"]}`)},
		"an enum with null":                  {property(`{"enum": ["NEW", null]}`), field(`["null", {"type": "enum", "name": "placed_a", "namespace": "order", "symbols": ["NEW"]}]`)},
		"an enum of other texts":             {property(`{"enum": ["NEW", "not paid"]}`), field(`"string"`)},
		"an enum of numbers":                 {property(`{"enum": [1, 2]}`), field(`"long"`)},
		"an enum of mixed values":            {property(`{"enum": [1, "b", true]}`), field(`["boolean", "long", "string"]`)},
		"an array":                           {property(`{"items": {"type": ["string", "null"]}}`), field(`{"type": "array", "items": ["null", "string"]}`)},
		"a map":                              {property(`{"type": "object", "additionalProperties": {"type": "number"}}`), field(`{"type": "map", "values": "double"}`)},
		"an object inside":                   {property(`{"type": "object", "required": ["b"], "properties": {"b": {"type": "string"}}}`), field(`{"type": "record", "name": "placed_a", "namespace": "order", "fields": [{"name": "b", "type": "string"}]}`)},
		"objects in an array":                {property(`{"type": "array", "items": {"type": "object", "additionalProperties": false}}`), field(`{"type": "array", "items": {"type": "record", "name": "placed_a_item", "namespace": "order", "fields": []}}`)},
		"objects in a map":                   {property(`{"type": "object", "additionalProperties": {"type": "object", "additionalProperties": false}}`), field(`{"type": "map", "values": {"type": "record", "name": "placed_a_value", "namespace": "order", "fields": []}}`)},
		"fields in alphabetical order":       {`{"required": ["b", "a"], "properties": {"b": {"type": "string"}, "a": {"type": "string"}}}`, record(`{"name": "a", "type": "string"}, {"name": "b", "type": "string"}`)},
		"allOf with one":                     {property(`{"allOf": [{"type": "string"}], "description": "x"}`), field(`"string"`)},
		"restrictions by anyOf":              {`{"properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}]}`, record(`{"name": "a", "type": ["null", "string"], "default": null}`)},
		"anyOf that JSON tells apart":        {property(`{"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "object", "additionalProperties": {"type": "string"}}]}`), field(`["string", "long", {"type": "map", "values": "string"}]`)},
		"a reference used twice":             {`{"required": ["a", "b"], "properties": {"a": {"$ref": "#/$defs/Person"}, "b": {"$ref": "#/$defs/Person"}}, "$defs": {"Person": {"type": "object", "additionalProperties": false}}}`, record(`{"name": "a", "type": {"type": "record", "name": "placed_a", "namespace": "order", "fields": []}}, {"name": "b", "type": {"type": "record", "name": "placed_b", "namespace": "order", "fields": []}}`)},
		"a reference to an array of objects": {`{"required": ["a", "b"], "properties": {"a": {"$ref": "#/definitions/List"}, "b": {"$ref": "#/definitions/List"}}, "definitions": {"List": {"items": {"type": "object", "additionalProperties": false}}}}`, record(`{"name": "a", "type": {"type": "array", "items": {"type": "record", "name": "placed_a_item", "namespace": "order", "fields": []}}}, {"name": "b", "type": {"type": "array", "items": {"type": "record", "name": "placed_b_item", "namespace": "order", "fields": []}}}`)},
		"a reference that may be null":       {`{"required": ["a"], "properties": {"a": {"$ref": "#/$defs/Text"}}, "$defs": {"Text": {"type": ["string", "null"]}}}`, field(`["null", "string"]`)},
		"recursion through the root":         {`{"properties": {"a": {"$ref": "#"}}}`, record(`{"name": "a", "type": ["null", "order.placed"], "default": null}`)},
		"recursion through a definition":     {`{"required": ["a"], "properties": {"a": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": {"properties": {"next": {"$ref": "#/$defs/Node"}}}}}`, field(`{"type": "record", "name": "placed_a", "namespace": "order", "fields": [{"name": "next", "type": ["null", "order.placed_a"], "default": null}]}`)},
		"recursion through an array":         {`{"required": ["a"], "properties": {"a": {"$ref": "#/$defs/List"}}, "$defs": {"List": {"items": {"required": ["b"], "properties": {"b": {"$ref": "#/$defs/List"}}}}}}`, field(`{"type": "array", "items": {"type": "record", "name": "placed_a_item", "namespace": "order", "fields": [{"name": "b", "type": {"type": "array", "items": "order.placed_a_item"}}]}}`)},
		"alternatives with names":            {property(`{"anyOf": [{"enum": ["A"]}, {"type": "object", "additionalProperties": false}]}`), field(`[{"type": "enum", "name": "placed_a", "namespace": "order", "symbols": ["A"]}, {"type": "record", "name": "placed_a_", "namespace": "order", "fields": []}]`)},
		"two ways that make the same name":   {`{"required": ["a", "a_b"], "properties": {"a": {"required": ["b"], "properties": {"b": {"enum": ["X"]}}}, "a_b": {"type": "object", "additionalProperties": false}}}`, record(`{"name": "a", "type": {"type": "record", "name": "placed_a", "namespace": "order", "fields": [{"name": "b", "type": {"type": "enum", "name": "placed_a_b", "namespace": "order", "symbols": ["X"]}}]}}, {"name": "a_b", "type": {"type": "record", "name": "placed_a_b_", "namespace": "order", "fields": []}}`)},
		"not an object":                      {`{"type": "array", "items": {"type": "string"}}`, `{"type": "array", "items": "string"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := encoding.DeriveAvro("order.placed", c.schema)
			require.NoError(t, err)
			require.JSONEq(t, c.want, text)
			_, err = avro.Parse(text)
			require.NoError(t, err)
			again, err := encoding.DeriveAvro("order.placed", c.schema)
			require.NoError(t, err)
			require.Equal(t, text, again)
		})
	}
}

func TestNamesOfGoTypesDoNotMatter(t *testing.T) {
	t.Parallel()
	line := `{"type": "object", "required": ["sku", "kind"], "properties": {"sku": {"type": "string"}, "kind": {"enum": ["A", "B"]}}}`
	order := func(items, defs string) string {
		return `{"type": "object", "properties": {"lines": {"type": "array", "items": ` + items + `}, "first": ` + items + `}, "$defs": {` + defs + `}}`
	}
	inlined, err := encoding.DeriveAvro("order.placed", order(line, ""))
	require.NoError(t, err)
	require.Contains(t, inlined, `"placed_lines_item"`)
	require.Contains(t, inlined, `"placed_lines_item_kind"`)
	require.Contains(t, inlined, `"placed_first"`)
	for name, schema := range map[string]string{
		"a type":                 order(`{"$ref": "#/$defs/Line"}`, `"Line": `+line),
		"renamed":                order(`{"$ref": "#/$defs/lines_item"}`, `"lines_item": `+line),
		"another of that name":   order(`{"$ref": "#/$defs/shop.Line"}`, `"Line": {"type": "object"}, "lines": true, "shop.Line": `+line),
		"a type that it defines": order(`{"$ref": "#/$defs/Line"}`, `"Line": {"$ref": "#/$defs/Other"}, "Other": `+line),
	} {
		text, err := encoding.DeriveAvro("order.placed", schema)
		require.NoError(t, err, name)
		require.Equal(t, inlined, text, name)
	}
}

func TestWhatIsExpandedTooOftenIsRefused(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{
		`{"properties": {"a": {"$ref": "#/$defs/D%d"}, "b": {"$ref": "#/$defs/D%[1]d"}}}`,
		`{"anyOf": [{"$ref": "#/$defs/D%d"}, {"$ref": "#/$defs/D%[1]d"}]}`,
	} {
		var defs strings.Builder
		for i := range 60 {
			fmt.Fprintf(&defs, `"D%d": %s, `, i, fmt.Sprintf(kind, i+1))
		}
		_, err := encoding.DeriveAvro("order.placed", `{"properties": {"a": {"$ref": "#/$defs/D0"}}, "$defs": {`+defs.String()+`"D60": {"type": "string"}}}`)
		require.ErrorContains(t, err, "the schema has more than 1000 records, enums and references")
		require.Less(t, len(err.Error()), 1000)
	}
}

func TestNamesOfTypesBecomeLegal(t *testing.T) {
	t.Parallel()
	for typ, want := range map[string]string{"order.placed": "order.placed", "order": "order", "shop.order-placed.2nd": "shop.order_placed._2nd"} {
		text, err := encoding.DeriveAvro(typ, `{"properties": {"a": {"$ref": "#"}}}`)
		require.NoError(t, err)
		schema, err := avro.Parse(text)
		require.NoError(t, err)
		root := schema.Root()
		require.Equal(t, want, strings.TrimPrefix(root.Namespace+"."+root.Name, "."))
	}
}

func TestWhatAvroCannotExpressNamesTheFieldAndTheWayOut(t *testing.T) {
	t.Parallel()
	property := func(schema string) string { return `{"type": "object", "properties": {"a": ` + schema + `}}` }
	for schema, want := range map[string]string{
		`true`: "the schema can be any value", `{}`: "the schema can be any value", `{"type": "object"}`: "the schema can be any object",
		property(`true`):                                 "/properties/a can be any value",
		property(`{"type": "array"}`):                    "/properties/a/items can be any value",
		property(`{"prefixItems": [], "type": "array"}`): "/properties/a has items of different types by their places",
		property(`{"anyOf": [{"type": "object", "properties": {"b": {"type": "string"}}}, {"type": "object", "properties": {"c": {"type": "string"}}}]}`): "/properties/a/anyOf has several alternatives that are each an object",
		property(`{"oneOf": [{"type": "string"}, {"enum": ["x"]}]}`):                                                                                      "several alternatives that are each a string",
		property(`{"allOf": [{"type": "object"}, {"type": "object"}]}`):                                                                                   "/properties/a combines schemas with allOf",
		property(`{"type": "object", "properties": {"b": {"type": "string"}}, "anyOf": [{"properties": {"c": true}}]}`):                                   "/properties/a/anyOf/0 extends an object",
		property(`{"$ref": "#", "properties": {"c": true}}`):                                                                                              "/properties/a extends what it refers to",
		property(`{"$ref": "https://example.org/x.json"}`):                                                                                                "/properties/a refers to https://example.org/x.json",
		property(`{"$ref": "#/$defs/None"}`):                                                                                                              "/properties/a refers to #/$defs/None",
		property(`{"type": "object", "patternProperties": {"x": true}}`):                                                                                  "/properties/a/patternProperties",
		property(`{"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": {"type": "string"}}`):                               "/properties/a/additionalProperties has values beside the properties",
		property(`{"enum": [[1]]}`):                   "/properties/a is one of several objects or arrays",
		property(`{"type": "money"}`):                 "/properties/a has the type money",
		`{"properties": {"a-b": {"type": "string"}}}`: "/properties/a-b cannot be the name of a field in Avro",
		`{"properties": {"a": {"$ref": "#/$defs/L"}}, "$defs": {"L": {"type": "array", "items": {"$ref": "#/$defs/L"}}}}`: "/$defs/L/items refers to itself without an object in between",
	} {
		_, err := encoding.DeriveAvro("order.placed", schema)
		require.ErrorContains(t, err, want, schema)
		require.ErrorContains(t, err, "give the type a schema with avro: in types")
	}
	_, err := encoding.DeriveAvro("order.placed", `{"properties": {"a-b": {"type": "string"}, "c": true}}`)
	require.ErrorContains(t, err, "/properties/a-b")
	require.ErrorContains(t, err, "/properties/c")
	_, err = encoding.DeriveAvro("order.placed", `{`)
	require.ErrorContains(t, err, "the JSON Schema")
}

func TestWhatDoesNotFitADerivedSchemaIsInvalid(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	c := contracts{sinks.JSONSchema: {Text: `{"type": "object", "required": ["id"], "properties": {
		"id": {"type": "integer"}, "small": {"type": "integer", "minimum": 0, "maximum": 9}, "price": {"type": "number"},
		"data": {"type": "string", "contentEncoding": "base64"}, "prices": {"type": "object", "additionalProperties": {"type": "number"}},
		"next": {"$ref": "#"}, "list": {"type": "array", "items": {"type": "string"}}, "mixed": {"type": ["string", "boolean"]}}}`}}
	e := newEncoder(t, c, r, encoding.FormatAvro)
	for payload, want := range map[string]string{
		`{}`:                                                "/id is missing",
		`{"id": null}`:                                      "/id is null, and the schema has long",
		`{"id": 9223372036854775808}`:                       "/id is not a whole number in the range of long",
		`{"id": 1.5}`:                                       "/id is not a whole number",
		`{"id": 1e400}`:                                     "/id is not a whole number",
		`{"id": 1e-9999999999}`:                             "/id is not a whole number",
		`{"id": 1, "small": 2147483648}`:                    "/small is not a whole number in the range of int",
		`{"id": 1, "price": 1e400}`:                         "/price is too large",
		`{"id": 1, "data": "AQI"}`:                          "/data is not base64",
		`{"id": 1, "data": "AQJ="}`:                         "/data is not base64",
		`{"id": 1, "data": "AQ\nI="}`:                       "/data is not base64",
		`{"id": 1, "prices": {"a/b~": "x"}}`:                "/prices/a~1b~0 is a string, and the schema has double",
		`{"id": 1, "prices": {"a": 1, "a": 2}}`:             "/prices/a is there twice",
		`{"id": 1, "next": {"id": 2, "next": {"id": "x"}}}`: "/next/next/id is a string",
		`{"id": 1, "list": ["a", ["b"]]}`:                   "/list/1 is an array",
		`{"id": 1, "mixed": 1}`:                             "/mixed is a number, and fits no branch",
		`{"id": 1, "id": 2}`:                                "/id is there twice",
		`{"id": 1`:                                          "the whole payload is not JSON",
		"{\"id\": 1, \"list\": [\"a\nb\\\"\"]}":             "the whole payload is not JSON",
		strings.Repeat("[", 502) + strings.Repeat("]", 502): "the whole payload is ",
		`[]`:                                "the whole payload is an array, and the schema has record",
		"{\"id\": 1, \"list\": [\"\xff\"]}": "the whole payload is not UTF-8",
	} {
		_, err := e.Encode(t.Context(), "orders", order(payload))
		requireClass(t, sinks.ClassInvalid, err)
		require.ErrorIs(t, err, encoding.ErrPayload)
		require.ErrorContains(t, err, want, payload)
	}
}

func TestHalvesOfCharactersAreInvalid(t *testing.T) {
	t.Parallel()
	c := contracts{
		sinks.JSONSchema: {Text: `{"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}, "b": {"type": "object", "additionalProperties": {"type": "string"}}}}`},
		sinks.Protobuf:   {Text: `syntax = "proto3"; message M { repeated string a = 1; map<string, string> b = 2; }`},
	}
	for _, format := range []string{encoding.FormatAvro, encoding.FormatProtobuf} {
		e := newEncoder(t, c, newRegistry(t), format)
		for text, isValid := range map[string]bool{
			`\ud800`: false, `\uDBFF`: false, `\udc00`: false, `\ud83dx`: false, `\ud83d\n`: false, `\ud83d\ud83d`: false, `\ude00\ud83d`: false,
			`\ud83d\ude00\ud83d`: false, `\\\ud800`: false, `\ud83d\\ude00`: false, `\ud83d\u0041`: false,
			`\ud83d\ude00`: true, `\uD83D\uDE00\ud83d\ude00`: true, `\\ud800`: true, `\ud7ff\ue000`: true, `\ufffd`: true, `\u0000`: true,
		} {
			_, err := e.Encode(t.Context(), "orders", order(`{"a": ["x", "`+text+`"]}`))
			_, nameErr := e.Encode(t.Context(), "orders", order(`{"b": {"`+text+`": "x"}}`))
			if isValid {
				require.NoError(t, err, text)
				require.NoError(t, nameErr, text)
				continue
			}
			requireClass(t, sinks.ClassInvalid, err)
			requireClass(t, sinks.ClassInvalid, nameErr)
			if format == encoding.FormatAvro {
				require.ErrorContains(t, err, "/a/1 has an escape")
				require.ErrorContains(t, nameErr, "/b/")
			}
		}
	}
}

func TestAPayloadWithMoreThanItsSchemaWaitsForAnotherVersionOfTheProgram(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	_, err := newEncoder(t, orders(), r, encoding.FormatAvro).Encode(t.Context(), "orders", order(`{"id": 1, "total": 1, "secret": 1}`))
	requireClass(t, sinks.ClassUnknown, err)
	require.ErrorContains(t, err, "/secret is not in the schema; another version of this program may know it")
	_, err = newEncoder(t, orders(), r, encoding.FormatProtobuf).Encode(t.Context(), "orders", order(`{"id": 1, "lines": [{"sécret": 2}]}`))
	requireClass(t, sinks.ClassUnknown, err)
	require.ErrorContains(t, err, "/lines/0/sécret is not in the message shop.Events.OrderPlaced; another version of this program may know it")
}

// drawn is a schema, and a payload that is valid by it.
type drawn struct {
	schema  map[string]any
	payload any
}

// draw draws a schema with a value, except that values of optional properties may be left out.
func draw(t *rapid.T, depth int) drawn {
	kinds := []string{"string", "integer", "small", "number", "boolean", "base64", "enum", "nullable", "either"}
	if depth > 0 {
		kinds = append(kinds, "object", "object", "array", "map")
	}
	switch rapid.SampledFrom(kinds).Draw(t, "kind") {
	case "string":
		return drawn{map[string]any{"type": "string"}, rapid.String().Draw(t, "text")}
	case "integer":
		return drawn{map[string]any{"type": "integer"}, rapid.Int64().Draw(t, "long")}
	case "small":
		return drawn{map[string]any{"type": "integer", "minimum": math.MinInt32, "maximum": math.MaxInt32}, rapid.Int32().Draw(t, "int")}
	case "number":
		return drawn{map[string]any{"type": "number"}, rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64).Draw(t, "double")}
	case "boolean":
		return drawn{map[string]any{"type": "boolean"}, rapid.Bool().Draw(t, "boolean")}
	case "base64":
		return drawn{map[string]any{"type": "string", "contentEncoding": "base64"}, rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")}
	case "enum":
		return drawn{map[string]any{"enum": []string{"A", "b_2"}}, rapid.SampledFrom([]string{"A", "b_2"}).Draw(t, "symbol")}
	case "nullable":
		return drawn{map[string]any{"type": []string{"null", "string"}}, rapid.SampledFrom([]any{nil, "x"}).Draw(t, "nullable")}
	case "either":
		return drawn{map[string]any{"type": []string{"boolean", "string", "number"}}, rapid.SampledFrom([]any{true, "x", 1.5}).Draw(t, "either")}
	case "array":
		element := draw(t, depth-1)
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, element.payload)
		}
		return drawn{map[string]any{"type": "array", "items": element.schema}, list}
	case "map":
		value := draw(t, depth-1)
		members := map[string]any{}
		for _, name := range rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "names") {
			members[name] = value.payload
		}
		return drawn{map[string]any{"type": "object", "additionalProperties": value.schema}, members}
	}
	return drawObject(t, depth)
}

func drawObject(t *rapid.T, depth int) drawn {
	properties, required, payload := map[string]any{}, []string{}, map[string]any{}
	for i := range rapid.IntRange(0, 20).Draw(t, "properties") {
		name := fmt.Sprintf("p%d", i)
		member := draw(t, depth-1)
		properties[name] = member.schema
		if rapid.Bool().Draw(t, "required") {
			required = append(required, name)
			payload[name] = member.payload
		} else if payload[name] = nil; rapid.Bool().Draw(t, "present") {
			payload[name] = member.payload
		}
	}
	return drawn{map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}, payload}
}

func TestWhatADerivedSchemaEncodesDecodesToTheSameJSON(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	rapid.Check(t, func(rt *rapid.T) {
		d := drawObject(rt, 3)
		schema, err := json.Marshal(d.schema)
		require.NoError(rt, err)
		payload, err := json.Marshal(d.payload)
		require.NoError(rt, err)
		e, err := encoding.New(sinks.Instance{Contracts: contracts{sinks.JSONSchema: {Text: string(schema)}}}, encoding.Config{
			Format: encoding.FormatAvro, Register: true, Registry: encoding.Registry{URL: r.URL()},
		})
		require.NoError(rt, err)
		defer e.Close()
		encoded, err := e.Encode(t.Context(), "orders", order(string(payload)))
		require.NoError(rt, err, "%s\n%s", schema, payload)
		text, err := encoding.DeriveAvro("order.placed", string(schema))
		require.NoError(rt, err)
		var v any
		rest, err := avro.MustParse(text).Decode(encoded[5:], &v)
		require.NoError(rt, err)
		require.Empty(rt, rest)
		decoded, err := json.Marshal(v) // bytes become base64
		require.NoError(rt, err)
		require.Equal(rt, canonical(t, payload), canonical(t, decoded))
	})
}

// FuzzEncode looks for payloads that the encoder accepts and that do not come back.
func FuzzEncode(f *testing.F) {
	f.Add([]byte(`{"id": 1, "s": "x\u00e9", "n": 1.5, "m": {"a": [1, 2]}}`))
	f.Add([]byte(strings.Repeat("[", 5) + "true, false, null, -0.5e+10, \"\\/\\b\\n\"" + strings.Repeat("]", 5)))
	f.Add([]byte(` {"id":1e3,"s":"\ud83d\ude00","o":{"id":9007199254740993,"s":""}}`))
	f.Add([]byte(`{"id":1,"s":"\ud83d\n\\ud800"}`))
	schema := `{"type": "object", "required": ["id", "s"], "properties": {"id": {"type": "integer"}, "s": {"type": "string"}, "n": {"type": "number"},
		"m": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}}, "o": {"$ref": "#"}}}`
	text, err := encoding.DeriveAvro("order.placed", schema)
	require.NoError(f, err)
	reader := avro.MustParse(text)
	r := newRegistry(f)
	e := newEncoder(f, contracts{sinks.JSONSchema: {Text: schema}}, r, encoding.FormatAvro)
	f.Fuzz(func(t *testing.T, payload []byte) {
		encoded, err := e.Encode(t.Context(), "orders", order(string(payload)))
		if err != nil {
			want := sinks.ClassInvalid
			if strings.Contains(err.Error(), "another version of this program may know it") {
				want = sinks.ClassUnknown
			}
			requireClass(t, want, err)
			if utf8.Valid(payload) {
				require.Equal(t, !json.Valid(payload), strings.HasSuffix(err.Error(), "is not JSON"), "%q", payload)
			}
			return
		}
		require.True(t, json.Valid(payload))
		var v any
		rest, err := reader.Decode(encoded[5:], &v)
		require.NoError(t, err)
		require.Empty(t, rest)
		decoded, err := json.Marshal(v)
		require.NoError(t, err)
		again, err := e.Encode(t.Context(), "orders", order(string(decoded)))
		require.NoError(t, err)
		require.NotEmpty(t, again)
	})
}
