package config

import (
	"reflect"
	"strings"
)

// field is a field of a struct that a key fills.
type field struct {
	name  string
	value reflect.Value
	tag   reflect.StructTag
}

// isShort says that a single value in the place of the struct is this field's.
func (f field) isShort() bool { return f.tag.Get("short") == "true" }

// choices are the values that a text can have; none for any.
func (f field) choices() []string {
	choices := f.tag.Get("enum")
	if choices == "" || f.value.Kind() != reflect.String {
		return nil
	}
	return strings.Split(choices, ",")
}

// fieldsOf lists the keys of a struct as the yaml package understands its tags.
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

// parent is the path above a path; "" above the first.
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// oneOf lists what there is to choose from.
func oneOf(choices []string) string {
	last := len(choices) - 1
	if last == 0 {
		return choices[0]
	}
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}
