package contract

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/invopop/jsonschema"
	"google.golang.org/protobuf/proto"
)

// describe returns the JSON Schema of what encoding/json writes for a Go type. package jsonschema reads
// types and tags; what it sees differently than encoding/json is corrected here: which fields are promoted,
// what is left out, what is null, and types that encode themselves.
func describe(t reflect.Type, from *sources) ([]byte, error) {
	d := &describer{from: from, names: make(map[reflect.Type]string)}
	d.find(t, "")
	if err := errors.Join(d.problems...); err != nil {
		return nil, err
	}
	d.name()
	r := jsonschema.Reflector{
		Anonymous: true, AllowAdditionalProperties: true,
		Namer: func(t reflect.Type) string { return d.names[t] }, Mapper: d.special,
		AdditionalFields: d.promoted, LookupComment: d.comment,
	}
	s := r.ReflectFromType(t)
	for _, found := range d.found {
		d.correct(found, s.Definitions)
	}
	name := d.names[t]
	if name == "" {
		d.elements(s, t)
	} else if root := s.Definitions[name]; root != nil {
		delete(s.Definitions, name)
		root.Version, root.Definitions = s.Version, s.Definitions
		s = root
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	return []byte(strings.ReplaceAll(string(text), `"$ref":"#/$defs/`+name+`"`, `"$ref":"#"`)), nil
}

// describer describes a type and the types of its fields.
type describer struct {
	from     *sources
	found    []reflect.Type // named types and structs, in the order in which they are found
	names    map[reflect.Type]string
	problems []error
}

var (
	timeType       = reflect.TypeFor[time.Time]()
	bigIntType     = reflect.TypeFor[big.Int]()
	rawMessageType = reflect.TypeFor[json.RawMessage]()
	numberType     = reflect.TypeFor[json.Number]()
	jsonMarshaler  = reflect.TypeFor[json.Marshaler]()
	textMarshaler  = reflect.TypeFor[encoding.TextMarshaler]()
	described      = reflect.TypeFor[interface{ JSONSchema() *jsonschema.Schema }]()
)

func isMessage(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[proto.Message]())
}

// special returns the schema of a type that encoding/json writes otherwise than package jsonschema describes
// it, such as a short integer or a text in base64; nil for all others.
func (d *describer) special(t reflect.Type) *jsonschema.Schema {
	switch {
	case t == timeType:
		return &jsonschema.Schema{Type: "string", Format: "date-time"}
	case t == rawMessageType:
		return &jsonschema.Schema{}
	case t == numberType:
		return &jsonschema.Schema{Type: "number"}
	case t == bigIntType:
		return &jsonschema.Schema{Type: "integer"}
	case describesItself(t):
		return nil // by package jsonschema
	case writesItself(t):
		return &jsonschema.Schema{} // a tag of the field says what
	case t.Kind() != reflect.Interface && implements(t, textMarshaler):
		if t.Name() == "UUID" && t.Kind() == reflect.Array && t.Len() == 16 {
			return &jsonschema.Schema{Type: "string", Format: "uuid"}
		}
		return &jsonschema.Schema{Type: "string"}
	case isBytes(t):
		return &jsonschema.Schema{Type: "string", ContentEncoding: "base64"}
	}
	integer := func(minimum int64, maximum uint64) *jsonschema.Schema {
		s := &jsonschema.Schema{Type: "integer", Minimum: json.Number(strconv.FormatInt(minimum, 10))}
		if maximum > 0 {
			s.Maximum = json.Number(strconv.FormatUint(maximum, 10))
		}
		return s
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int64:
		return &jsonschema.Schema{Type: "integer"}
	case reflect.Int8:
		return integer(math.MinInt8, math.MaxInt8)
	case reflect.Int16:
		return integer(math.MinInt16, math.MaxInt16)
	case reflect.Int32:
		return integer(math.MinInt32, math.MaxInt32)
	case reflect.Uint8:
		return integer(0, math.MaxUint8)
	case reflect.Uint16:
		return integer(0, math.MaxUint16)
	case reflect.Uint32:
		return integer(0, math.MaxUint32)
	case reflect.Uint, reflect.Uint64, reflect.Uintptr:
		return integer(0, 0)
	}
	return nil
}

func implements(t, i reflect.Type) bool { return t.Implements(i) || reflect.PointerTo(t).Implements(i) }

// writesItself reports whether a type has a MarshalJSON into which the derivation cannot look.
func writesItself(t reflect.Type) bool {
	return t.Kind() != reflect.Interface && implements(t, jsonMarshaler) && !describesItself(t) && t != timeType && t != bigIntType && t != rawMessageType
}

func describesItself(t reflect.Type) bool {
	return t.Kind() != reflect.Interface && t.Implements(described)
}

// isBytes reports whether encoding/json writes a type as a text in base64.
func isBytes(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 &&
		!implements(t.Elem(), jsonMarshaler) && !implements(t.Elem(), textMarshaler)
}

// find finds the types of which a type consists, and reports those that have no schema with the path of
// their field.
func (d *describer) find(t reflect.Type, path string) {
	for pointer := t; t.Kind() == reflect.Pointer; {
		if t = t.Elem(); t == pointer {
			d.problems = append(d.problems, fmt.Errorf("field %s: %s points to itself: use another type", path, t))
			return
		}
	}
	problem := func(text string, args ...any) {
		where := "the type"
		if path != "" {
			where = "field " + path
		}
		d.problems = append(d.problems, fmt.Errorf("%s: %s "+text, append([]any{where, t}, args...)...))
	}
	switch {
	case slices.Contains(d.found, t):
		return
	case writesItself(t):
		problem(`has its own MarshalJSON: give the field a tag such as jsonschema:"type=string", the type a method JSONSchema() *jsonschema.Schema (github.com/invopop/jsonschema), or the whole schema with registry.JSONSchema`)
		return
	case d.special(t) != nil, describesItself(t):
		return
	}
	if t.Name() != "" || t.Kind() == reflect.Struct {
		d.found = append(d.found, t)
	}
	switch t.Kind() {
	case reflect.Struct:
		if t.PkgPath() == "net/url" && t.Name() == "URL" {
			problem("would be written as its parts: use a string")
			return
		}
		for _, f := range fieldsOf(t) {
			if base := baseOf(f.Type); writesItself(base) && tagHas(f, "type=") {
				continue
			}
			d.find(f.Type, join(path, f.json))
		}
	case reflect.Slice, reflect.Array:
		d.find(t.Elem(), path+"[]")
	case reflect.Map:
		if k := t.Key(); k.Kind() != reflect.String && !isInteger(k.Kind()) && !k.Implements(textMarshaler) {
			problem("has keys that JSON cannot have: use texts or integers")
		}
		if e := t.Elem(); (implements(e, jsonMarshaler) && !e.Implements(jsonMarshaler) || implements(e, textMarshaler) && !e.Implements(textMarshaler)) && e.Kind() != reflect.Pointer {
			problem("has values that write themselves only through a pointer, which they are not: use pointers as the map's values")
		}
		d.find(t.Elem(), join(path, "*"))
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		problem(`cannot be JSON: leave the field out with the tag json:"-", or use another type`)
	}
}

// tagHas reports whether a field's tag jsonschema has an option that begins so.
func tagHas(f field, option string) bool {
	return slices.ContainsFunc(strings.Split(f.Tag.Get("jsonschema"), ","), func(given string) bool { return strings.HasPrefix(given, option) })
}

func baseOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

func isInteger(k reflect.Kind) bool { return k >= reflect.Int && k <= reflect.Uintptr }

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// unsafe has the characters that are not used in names of $defs.
var unsafe = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// name gives the found types unique names: those of Go, with the package if two are the same.
func (d *describer) name() {
	same := make(map[string]int)
	short := func(t reflect.Type) string { return strings.Trim(unsafe.ReplaceAllString(t.Name(), "_"), "_") }
	for _, t := range d.found {
		same[short(t)]++
	}
	taken := make(map[string]bool)
	for _, t := range d.found {
		name := short(t)
		if name == "" {
			continue // it is written where it is used
		}
		if same[name] > 1 {
			name = strings.Trim(unsafe.ReplaceAllString(t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:], "_"), "_") + "." + name
		}
		for unique, n := name, 2; taken[name]; n++ {
			name = fmt.Sprintf("%s_%d", unique, n)
		}
		taken[name], d.names[t] = true, name
	}
}

// promoted returns the fields that encoding/json writes, which package jsonschema takes over.
func (d *describer) promoted(t reflect.Type) (fields []reflect.StructField) {
	for _, f := range fieldsOf(t) {
		f.Anonymous = false
		if !f.quoted {
			f.Tag = reflect.StructTag(strings.Replace(string(f.Tag), ",string", "", 1)) // it has no effect
		}
		fields = append(fields, f.StructField)
	}
	return fields
}

// comment returns the comment of a type, or of one of its fields, which may be promoted from another.
func (d *describer) comment(t reflect.Type, field string) string {
	if field == "" {
		return d.from.comment(t, "")
	}
	if f, ok := t.FieldByName(field); ok {
		for _, i := range f.Index[:len(f.Index)-1] {
			if t = t.Field(i).Type; t.Kind() == reflect.Pointer {
				t = t.Elem()
			}
		}
	}
	return d.from.comment(t, field)
}

// correct corrects the schema of a found type.
func (d *describer) correct(t reflect.Type, all jsonschema.Definitions) {
	s := all[d.names[t]]
	if s == nil {
		return
	}
	if t.Kind() != reflect.Struct {
		d.elements(s, t)
		return
	}
	fields := fieldsOf(t)
	s.Required = nil
	properties := jsonschema.NewProperties()
	for _, f := range fields {
		p, ok := s.Properties.Get(f.json)
		if !ok {
			continue // hidden by the tag jsonschema:"-"
		}
		if f.quoted {
			p.Minimum, p.Maximum = "", ""
		}
		properties.Set(f.json, d.nullable(p, f.Type, f.omits))
		if !f.optional() || tagHas(f, "required") {
			s.Required = append(s.Required, f.json)
		}
	}
	s.Properties = properties
}

// nullable returns the schema of a value of type t, which may be null if it can be nil.
func (d *describer) nullable(s *jsonschema.Schema, t reflect.Type, omitted bool) *jsonschema.Schema {
	null := canBeNil(t) && !omitted
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
		null = null || canBeNil(t) // to which the pointer points
	}
	if s.Ref == "" {
		d.elements(s, t)
	}
	switch {
	case !null || s.Type == "" && s.Ref == "":
		return s
	case s.Ref != "" || len(s.Enum) > 0:
		described := &jsonschema.Schema{Title: s.Title, Description: s.Description}
		s.Title, s.Description = "", ""
		described.AnyOf = []*jsonschema.Schema{s, {Type: "null"}}
		return described
	}
	if s.Extras == nil {
		s.Extras = make(map[string]any)
	}
	s.Extras["type"] = []string{s.Type, "null"}
	s.Type = ""
	return s
}

func canBeNil(t reflect.Type) bool {
	return t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map
}

// elements corrects the schemas of a list's or a map's elements.
func (d *describer) elements(s *jsonschema.Schema, t reflect.Type) {
	switch {
	case d.special(t) != nil || describesItself(t):
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		if s.Items != nil {
			s.Items = d.nullable(s.Items, t.Elem(), false)
		}
	case t.Kind() == reflect.Map:
		for _, element := range s.PatternProperties { // of a map whose keys are numbers
			s.AdditionalProperties, s.PatternProperties = element, nil
			s.PropertyNames = &jsonschema.Schema{Pattern: "^-?[0-9]+$"}
		}
		if s.AdditionalProperties != nil {
			s.AdditionalProperties = d.nullable(s.AdditionalProperties, t.Elem(), false)
		}
	case t.Kind() == reflect.Struct && t.Name() == "":
		d.correct(t, jsonschema.Definitions{"": s})
	}
}
