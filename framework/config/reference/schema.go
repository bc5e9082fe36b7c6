package reference

import (
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/internal/keys"
	"github.com/waybill-go/waybill/framework/config/internal/secret"
	"github.com/waybill-go/waybill/framework/internal/duration"
	"github.com/waybill-go/waybill/sinks"
)

// schema is a JSON Schema, draft 2020-12.
type schema = map[string]any

// WriteSchema writes the JSON Schema of the configuration, for editors. It accepts everything
// that [config.Load] accepts. So no key is required except kind, because variables can set the others,
// and limits are left to Load.
func WriteSchema(w io.Writer, kinds *sinks.Set) error {
	whole := structSchema(reflect.ValueOf(config.Defaults()).Elem())
	whole["$schema"], whole["title"] = "https://json-schema.org/draft/2020-12/schema", "Configuration of waybill"
	definitions := scalars()
	whole["$defs"] = definitions
	sink := whole["properties"].(schema)["sinks"].(schema)["additionalProperties"].(schema)
	addKinds(sink, definitions, kinds)

	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(whole)
}

// scalars returns the schemas of single values, by name.
func scalars() schema {
	return schema{
		"reference": schema{"type": "string", "pattern": `\$\{|^file:`, "description": "${NAME} of the environment, or file:PATH"},
		"text":      schema{"type": []string{"string", "number", "boolean", "null"}},
		"whole":     orReference(schema{"type": []string{"integer", "null"}}),
		"number":    orReference(schema{"type": []string{"number", "null"}}),
		"switch": orReference(schema{"type": []string{"boolean", "null"}},
			schema{"type": "string", "pattern": `^([yY]|[yY]es|YES|[oO]n|ON|[nN]|[nN]o|NO|[oO]ff|OFF)$`}), // as YAML 1.1 has them
		"duration": orReference(schema{"type": "null"}, schema{"const": 0},
			schema{"type": "string", "pattern": `^([-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|^[-+]?0$`}),
	}
}

// addKinds makes the schema of a sink require the key kind, and check the key with by the kind.
func addKinds(sink, definitions schema, kinds *sinks.Set) {
	var choices []schema
	for _, name := range kinds.Names() {
		kind, _ := kinds.Kind(name)
		definition := "kind-" + name
		definitions[definition] = described(structSchema(reflect.ValueOf(kind.Config()).Elem()), kind.Summary)
		choices = append(choices, schema{
			"if":   schema{"properties": schema{"kind": schema{"const": name}}, "required": []string{"kind"}},
			"then": schema{"properties": schema{"with": schema{"$ref": "#/$defs/" + definition}}},
		})
	}
	sink["required"], sink["allOf"] = []string{"kind"}, choices
	kind := sink["properties"].(schema)["kind"].(schema)
	delete(kind, "$ref")
	maps.Copy(kind, orReference(schema{"enum": kinds.Names()}))
}

// orReference returns a schema that accepts one of some schemas, or a reference.
func orReference(schemas ...any) schema {
	return schema{"anyOf": append(schemas, schema{"$ref": "#/$defs/reference"})}
}

// structSchema returns the schema of a struct's keys. The struct's values are the defaults.
func structSchema(v reflect.Value) schema {
	types, properties := []string{"object", "null"}, make(schema)
	var nested []keys.Field
	for _, f := range keys.Of(v) {
		if f.IsNested() {
			nested = append(nested, f)
			continue
		}
		properties[f.Name] = fieldSchema(f)
		if f.IsShort() {
			types = append(types, "string", "number", "boolean")
		}
	}
	whole := schema{"type": types, "properties": properties, "additionalProperties": false}
	for _, f := range nested {
		item := maps.Clone(whole)
		item["properties"] = maps.Clone(properties)
		properties[f.Name] = described(schema{"type": []string{"object", "null"}, "additionalProperties": item}, f.Doc())
	}
	return whole
}

func fieldSchema(f keys.Field) schema {
	s := valueSchema(f.Value)
	if choices := f.Choices(); len(choices) > 0 {
		s = orReference(schema{"enum": choices}, schema{"type": "null"})
	}
	if f.Tag.Get("zero") == "refused" && (f.Value.CanInt() || f.Value.CanFloat()) && f.Value.Type() != reflect.TypeFor[time.Duration]() {
		s["exclusiveMinimum"] = 0
	}
	_, standard := splitDoc(f.Doc())
	if value, ok := defaultOf(f.Value); ok && !strings.Contains(standard, " if ") { // no schema says a condition
		s["default"] = value
	}
	if f.Secrecy(secret.Untagged) == secret.All {
		s["writeOnly"] = true
	}
	return described(s, f.Doc())
}

// valueSchema returns the schema of what the decoder accepts for v, which must be settable.
func valueSchema(v reflect.Value) schema {
	switch v.Addr().Interface().(type) {
	case *config.Database:
		return schema{"$ref": "#/$defs/text", "examples": []string{"postgres://app@db.example:5432/app?sslmode=verify-full", "mysql://app@localhost:3306/app", "sqlite:outbox.db"}}
	case *config.With:
		return schema{"type": []string{"object", "null"}}
	case *time.Duration:
		return schema{"$ref": "#/$defs/duration"}
	case encoding.TextUnmarshaler:
		return schema{"$ref": "#/$defs/text"}
	case yaml.Unmarshaler:
		return schema{}
	}
	switch v.Kind() {
	case reflect.String:
		return schema{"$ref": "#/$defs/text"}
	case reflect.Bool:
		return schema{"$ref": "#/$defs/switch"}
	case reflect.Struct:
		return structSchema(v)
	case reflect.Pointer:
		return valueSchema(elementOf(v))
	case reflect.Map:
		return schema{"type": []string{"object", "null"}, "additionalProperties": valueSchema(elementOf(v))}
	case reflect.Slice:
		return schema{"type": []string{"array", "null"}, "items": valueSchema(elementOf(v))}
	}
	switch {
	case v.CanInt(), v.CanUint():
		return schema{"$ref": "#/$defs/whole"}
	case v.CanFloat():
		return schema{"$ref": "#/$defs/number"}
	}
	return schema{} // an interface: anything
}

// elementOf returns the element of a pointer, of a map or of a slice, or a zero value if there
// is none.
func elementOf(v reflect.Value) reflect.Value {
	element := reflect.New(v.Type().Elem()).Elem()
	switch {
	case v.Kind() == reflect.Pointer && !v.IsNil():
		element.Set(v.Elem())
	case v.Kind() == reflect.Map && v.Len() == 1:
		element.Set(v.MapIndex(v.MapKeys()[0]))
	}
	return element
}

// defaultOf returns a default as in a file; false if there is none.
func defaultOf(v reflect.Value) (any, bool) {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if !keys.IsScalar(v) || v.IsZero() && v.Kind() != reflect.Bool {
		return nil, false
	}
	switch value := v.Interface().(type) {
	case time.Duration:
		return duration.Text(value), true
	case fmt.Stringer:
		return value.String(), true
	}
	return v.Interface(), true
}

func described(s schema, text string) schema {
	if text != "" {
		s["description"] = upperFirst(text)
	}
	return s
}
