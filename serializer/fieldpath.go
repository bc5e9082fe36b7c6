package serializer

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
)

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// fieldPath returns the path from v to the first value for which match returns true, such as
// "Lines[2].Price". It visits the values that encoding/json visits, whose errors do not contain
// the path. It returns "" if no value matches or if v itself does.
func fieldPath(v any, match func(reflect.Value) bool) string {
	s := pathSearch{match: match, seen: make(map[reference]bool)}
	path, _ := s.find(reflect.ValueOf(v), "")
	return path
}

type pathSearch struct {
	match func(reflect.Value) bool
	// seen has the visited references, so that the search ends in values that contain
	// themselves.
	seen map[reference]bool
}

type reference struct {
	goType  reflect.Type
	address uintptr
	length  int
}

func (s pathSearch) find(v reflect.Value, path string) (string, bool) {
	if !v.IsValid() || marshalsItself(v.Type()) || s.visited(v) {
		return "", false
	}
	if s.match(v) {
		return path, true
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return s.find(v.Elem(), path)
	case reflect.Struct:
		return s.findInStruct(v, path)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if found, ok := s.find(v.Index(i), fmt.Sprintf("%s[%d]", path, i)); ok {
				return found, true
			}
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			if found, ok := s.find(entries.Value(), fmt.Sprintf("%s[%v]", path, entries.Key())); ok {
				return found, true
			}
		}
	}
	return "", false
}

func (s pathSearch) findInStruct(v reflect.Value, path string) (string, bool) {
	for field, value := range v.Fields() {
		if field.Tag.Get("json") == "-" || (!field.IsExported() && !field.Anonymous) {
			continue
		}
		at := field.Name
		if path != "" {
			at = path + "." + at
		}
		if found, ok := s.find(value, at); ok {
			return found, true
		}
	}
	return "", false
}

// visited reports whether the search has already visited a reference, and records the visit.
func (s pathSearch) visited(v reflect.Value) bool {
	r := reference{goType: v.Type()}
	switch v.Kind() {
	case reflect.Pointer, reflect.Map:
		r.address = v.Pointer()
	case reflect.Slice:
		r.address, r.length = v.Pointer(), v.Len()
	default:
		return false
	}
	if s.seen[r] {
		return true
	}
	s.seen[r] = true
	return false
}

// marshalsItself reports whether encoding/json calls a method of the value instead of visiting its
// fields.
func marshalsItself(t reflect.Type) bool {
	if t.Kind() != reflect.Pointer {
		t = reflect.PointerTo(t)
	}
	return t.Implements(jsonMarshaler) || t.Implements(textMarshaler)
}
