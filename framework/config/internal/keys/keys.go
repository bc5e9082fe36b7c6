package config

import (
	"path"
	"reflect"
	"strings"
)

// field is a struct field and its key.
type field struct {
	name   string
	value  reflect.Value
	tag    reflect.StructTag
	owner  reflect.Type // the struct
	inCode string       // its name in the struct
}

// doc returns the description: the tag doc, or else the first paragraph of the field's comment.
func (f field) doc() string {
	if text, ok := f.tag.Lookup("doc"); ok {
		return text
	}
	return comments[path.Base(f.owner.PkgPath())+"."+f.owner.Name()+"."+f.inCode]
}

// isNested reports whether the field maps names to its own struct. That does not nest deeper.
func (f field) isNested() bool {
	return f.value.Kind() == reflect.Map && f.value.Type().Elem() == f.owner
}

// isShort reports whether a single value in place of the struct's mapping sets this field.
func (f field) isShort() bool { return f.tag.Get("short") == "true" }

// choices returns the values that a text may have; none if it may have any.
func (f field) choices() []string {
	choices := f.tag.Get("enum")
	if choices == "" || f.value.Kind() != reflect.String {
		return nil
	}
	return strings.Split(choices, ",")
}

// fieldsOf returns the fields of a struct with their keys, by the rules of the yaml package.
func fieldsOf(v reflect.Value) []field {
	var fields []field
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case strings.Contains(options, "inline") && f.Type.Kind() == reflect.Struct:
			fields = append(fields, fieldsOf(v.Field(i))...)
		case name == "":
			fields = append(fields, field{strings.ToLower(f.Name), v.Field(i), f.Tag, v.Type(), f.Name})
		default:
			fields = append(fields, field{name, v.Field(i), f.Tag, v.Type(), f.Name})
		}
	}
	return fields
}

// parent returns the path above a path; "" for a key at the top.
func parent(key string) string {
	return key[:max(0, strings.LastIndexAny(key, ".["))]
}

func join(above, name string) string {
	if above == "" {
		return name
	}
	return above + "." + name
}

// oneOf lists choices: a, b or c.
func oneOf(choices []string) string {
	last := len(choices) - 1
	if last == 0 {
		return choices[0]
	}
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}
