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

// fieldPath returns the way from v to the first value that encoding/json would
// meet and that is the culprit, such as "Lines[2].Price"; "" when it finds none
// or when that is v itself. encoding/json does not tell it.
func fieldPath(v any, culprit func(reflect.Value) bool) string {
	s := pathSearch{culprit: culprit, seen: make(map[reference]bool)}
	path, _ := s.find(reflect.ValueOf(v), "")
	return path
}

type pathSearch struct {
	culprit func(reflect.Value) bool
	// seen ends the search in values that contain themselves.
	seen map[reference]bool
}

type reference struct {
	of      reflect.Type
	address uintptr
	length  int
}

func (s pathSearch) find(v reflect.Value, path string) (string, bool) {
	if !v.IsValid() || marshalsItself(v.Type()) || s.visited(v) {
		return "", false
	}
	if s.culprit(v) {
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

// visited reports whether the search came through this reference before.
func (s pathSearch) visited(v reflect.Value) bool {
	r := reference{of: v.Type()}
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

// marshalsItself reports whether encoding/json asks the value for its text
// instead of looking inside.
func marshalsItself(t reflect.Type) bool {
	if t.Kind() != reflect.Pointer {
		t = reflect.PointerTo(t)
	}
	return t.Implements(jsonMarshaler) || t.Implements(textMarshaler)
}
