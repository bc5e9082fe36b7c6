// Package keys has the keys of a configuration: the fields of its structs, with their tags and
// comments.
package keys

import (
	"encoding"
	"path"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/waybill-go/waybill/framework/config/internal/secret"
)

// Field is a struct field and its key.
type Field struct {
	Name   string
	Value  reflect.Value
	Tag    reflect.StructTag
	owner  reflect.Type // the struct
	inCode string       // its name in the struct
}

// Doc returns the description: the tag doc, or else the first paragraph of the field's comment.
func (f Field) Doc() string {
	if text, ok := f.Tag.Lookup("doc"); ok {
		return text
	}
	return comments[path.Base(f.owner.PkgPath())+"."+f.owner.Name()+"."+f.inCode]
}

// IsNested reports whether the field maps names to its own struct. That does not nest deeper.
func (f Field) IsNested() bool {
	return f.Value.Kind() == reflect.Map && f.Value.Type().Elem() == f.owner
}

// IsShort reports whether a single value in place of the struct's mapping sets this field.
func (f Field) IsShort() bool { return f.Tag.Get("short") == "true" }

// Choices returns the values that a text may have; none if it may have any.
func (f Field) Choices() []string {
	choices := f.Tag.Get("enum")
	if choices == "" || f.Value.Kind() != reflect.String {
		return nil
	}
	return strings.Split(choices, ",")
}

// Of returns the fields of a struct with their keys, by the rules of the yaml package.
func Of(v reflect.Value) []Field {
	var fields []Field
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case strings.Contains(options, "inline") && f.Type.Kind() == reflect.Struct:
			fields = append(fields, Of(v.Field(i))...)
		case name == "":
			fields = append(fields, Field{strings.ToLower(f.Name), v.Field(i), f.Tag, v.Type(), f.Name})
		default:
			fields = append(fields, Field{name, v.Field(i), f.Tag, v.Type(), f.Name})
		}
	}
	return fields
}

// Parent returns the path above a path; "" for a key at the top.
func Parent(key string) string {
	return key[:max(0, strings.LastIndexAny(key, ".["))]
}

// Join returns the path of a key below a path; "" is the top.
func Join(above, name string) string {
	if above == "" {
		return name
	}
	return above + "." + name
}

// IsScalar reports whether a single value fills v.
func IsScalar(v reflect.Value) bool {
	switch v.Addr().Interface().(type) {
	case encoding.TextUnmarshaler, yaml.Unmarshaler:
		return true
	}
	switch v.Kind() {
	case reflect.String, reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	}
	return false
}

// Secrecy returns the secrecy of the field: that of its tag, or else what it inherits from the key above it.
func (f Field) Secrecy(above secret.Secrecy) secret.Secrecy {
	if tag, ok := f.Tag.Lookup("secret"); ok {
		return secret.Secrecy(tag)
	}
	return above.Below(f.Name)
}
