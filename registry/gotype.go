package registry

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// checkGoType returns an error if values of t cannot be notifications.
func checkGoType(t reflect.Type) error {
	base := baseOf(t)
	if !isOrPointsTo(t, base) {
		return fmt.Errorf("%w: %s is a named pointer type; use %s", ErrGoType, t, base)
	}
	switch base.Kind() {
	case reflect.Interface:
		return fmt.Errorf("%w: %s is an interface; use the types that implement it", ErrGoType, t)
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return fmt.Errorf("%w: %s has no value to serialize; use a struct", ErrGoType, t)
	case reflect.Pointer:
		return fmt.Errorf("%w: %s is a pointer to a pointer; use %s", ErrGoType, t, base)
	}
	return nil
}

// baseOf returns t without its pointer.
func baseOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// isOrPointsTo reports whether t is base or *base. It returns false for a named pointer type.
func isOrPointsTo(t, base reflect.Type) bool {
	return t == base || t == reflect.PointerTo(base)
}

// pointerTo returns v if it is a pointer, or a pointer to a copy of v. It returns ErrNil for a nil
// pointer. v must not be nil.
func pointerTo(v any) (any, error) {
	value := reflect.ValueOf(v)
	if value.Kind() == reflect.Pointer {
		if value.IsNil() {
			return nil, fmt.Errorf("%w: it is a nil pointer of the type %T", ErrNil, v)
		}
		return v, nil
	}
	p := reflect.New(value.Type())
	p.Elem().Set(value)
	return p.Interface(), nil
}

// pointerAt is pointerTo for a known type.
func pointerAt[T any](v T) (any, error) {
	if reflect.TypeFor[T]().Kind() == reflect.Pointer {
		return pointerTo(v)
	}
	return &v, nil
}

// valueAt returns p as a T. p must be a T or a *T.
func valueAt[T any](p any) T {
	if v, ok := p.(T); ok {
		return v
	}
	return *p.(*T)
}

// unregistered returns the error of a Go type that is not registered, with the call that registers
// it.
func unregistered(t reflect.Type) error {
	if err := checkGoType(t); err != nil {
		return err
	}
	if t.Name() == "" && t.Kind() == reflect.Slice {
		return fmt.Errorf("%w: %s", ErrUnregistered, t) // the caller probably meant the elements
	}
	return fmt.Errorf("%w: %s; call registry.Register[%[2]s](types, %[3]q) at the start of the program, or, in package waybill, waybill.Register[%[2]s](o, %[3]q)", ErrUnregistered, t, suggestName(t))
}

// suggestName makes a name from a Go type: shop.OrderPlaced becomes "order.placed".
func suggestName(t reflect.Type) string {
	goName, _, _ := strings.Cut(baseOf(t).Name(), "[") // without type arguments
	if goName == "" {
		return "order.placed"
	}
	var name strings.Builder
	letters := []rune(goName)
	for i, r := range letters {
		if i > 0 && unicode.IsUpper(r) && (!unicode.IsUpper(letters[i-1]) || (i+1 < len(letters) && unicode.IsLower(letters[i+1]))) {
			name.WriteByte('.')
		}
		name.WriteRune(unicode.ToLower(r))
	}
	return name.String()
}
