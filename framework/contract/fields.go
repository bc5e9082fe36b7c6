package contract

import (
	"reflect"
	"slices"
	"strings"
)

// field is a field of a struct as encoding/json writes it.
type field struct {
	reflect.StructField
	json   string // its name
	tagged bool
	depth  int
	omits  bool // when it is empty or zero
	within bool // an embedded pointer, without which it is left out
	quoted bool // by the option string
}

func (f field) optional() bool { return f.omits || f.within }

// fieldsOf returns the fields that encoding/json writes, in the order of the source. Of several with one
// name, it writes the one with the least depth; of those, the one whose tag has the name; and none if there
// are several: https://pkg.go.dev/encoding/json#Marshal.
func fieldsOf(t reflect.Type) []field {
	all := collect(t, 0, false, nil, []reflect.Type{t})
	return slices.DeleteFunc(slices.Clone(all), func(f field) bool {
		for _, other := range all {
			if other.json != f.json || slices.Equal(other.Index, f.Index) {
				continue
			}
			if other.depth < f.depth || other.depth == f.depth && (other.tagged || !f.tagged) {
				return true
			}
		}
		return false
	})
}

func collect(t reflect.Type, depth int, within bool, index []int, above []reflect.Type) (fields []field) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		base := baseOf(f.Type)
		if tag == "-" || !f.IsExported() && (!f.Anonymous || base.Kind() != reflect.Struct) {
			continue
		}
		f.Index = append(slices.Clone(index), i)
		if f.Anonymous && name == "" && base.Kind() == reflect.Struct {
			if !slices.Contains(above, base) {
				fields = append(fields, collect(base, depth+1, within || f.Type.Kind() == reflect.Pointer, f.Index, append(slices.Clone(above), base))...)
			}
			continue
		}
		if !f.IsExported() {
			continue
		}
		is := field{StructField: f, json: name, tagged: name != "", depth: depth, within: within}
		if name == "" {
			is.json = f.Name
		}
		for option := range strings.SplitSeq(options, ",") {
			switch option {
			case "omitzero":
				is.omits = true
			case "omitempty":
				is.omits = is.omits || canBeEmpty(f.Type)
			case "string":
				is.quoted = base.Kind() >= reflect.Bool && base.Kind() <= reflect.Float64 || base.Kind() == reflect.String
			}
		}
		fields = append(fields, is)
	}
	return fields
}

// canBeEmpty reports whether the option omitempty has an effect.
func canBeEmpty(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		return false
	case reflect.Array:
		return t.Len() == 0
	}
	return true
}
