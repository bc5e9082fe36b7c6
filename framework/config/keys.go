package config

import (
	"reflect"
	"strings"
)

// field is a struct field and its key.
type field struct {
	name  string
	value reflect.Value
	tag   reflect.StructTag
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
			fields = append(fields, field{strings.ToLower(f.Name), v.Field(i), f.Tag})
		default:
			fields = append(fields, field{name, v.Field(i), f.Tag})
		}
	}
	return fields
}

// parent returns the path above a path; "" for a key at the top.
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// oneOf lists choices: a, b or c.
func oneOf(choices []string) string {
	last := len(choices) - 1
	if last == 0 {
		return choices[0]
	}
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}
