package registry

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/waybill-go/waybill/serializer"
)

// Pointer is a JSON Pointer (RFC 6901), one name for each step; no steps are the whole document. A step
// [Any] is each element of a list, or each member of an object.
type Pointer []string

// Any is the step of a Pointer that leads to all elements or members. No member with this name can be meant.
const Any = "*"

// ParsePointer parses the text of a pointer, such as /customer/email or /lines/*/name; "" is the whole
// document.
func ParsePointer(text string) (Pointer, error) {
	if text == "" {
		return nil, nil
	}
	rest, absolute := strings.CutPrefix(text, "/")
	if !absolute {
		return nil, fmt.Errorf(`%q is no JSON pointer: write /%s, or "" for the whole payload`, text, text)
	}
	p := Pointer(strings.Split(rest, "/"))
	for i, step := range p {
		if unknown := strings.NewReplacer("~0", "", "~1", "").Replace(step); strings.Contains(unknown, "~") {
			return nil, fmt.Errorf("%q is no JSON pointer: write ~0 for ~, and ~1 for / in a name", text)
		}
		p[i] = unescaped.Replace(step)
	}
	return p, nil
}

var unescaped, escaped = strings.NewReplacer("~1", "/", "~0", "~"), strings.NewReplacer("~", "~0", "/", "~1")

// String returns the pointer as text.
func (p Pointer) String() string {
	var b strings.Builder
	for _, step := range p {
		b.WriteString("/" + escaped.Replace(step))
	}
	return b.String()
}

// Overlaps reports whether one of the pointers leads into what the other one points to.
func (p Pointer) Overlaps(q Pointer) bool {
	for i := range min(len(p), len(q)) {
		if p[i] != q[i] && p[i] != Any && q[i] != Any {
			return false
		}
	}
	return true
}

// private are the private values of one subject in the payloads of a type.
type private struct {
	subject func(p any) string
	at      []Pointer
}

// PrivateValues are where private values of one person stand in a payload.
type PrivateValues struct {
	// Subject is the person, by the application's own id. It is stored nowhere.
	Subject string
	// At are the places; a place without steps is the whole payload. It must not be changed.
	At []Pointer
}

// Private marks values of the payload as private data of a person, the subject: publishers with a
// privacy.Keyring encrypt them under a key of the subject, which can be erased. See package privacy.
//
// Fields are Go fields, such as "Email" or "Address.Street"; those of the elements of a list or map are
// written without an index, such as "Lines.Name". A field that is a struct, list or map is private as a
// whole. A field that begins with "/" is a JSON pointer into the payload instead, and with another
// serializer than serializer.JSON all must be. Without fields, the whole payload is private, in any format.
//
// T is the registered type or a pointer to it. subject must be safe for concurrent use. A type may have several such
// options, for values of several persons. An ordering key is never encrypted: use ids as keys.
func Private[T any](subject func(T) string, fields ...string) TypeOption {
	return func(d *definition) error {
		if subject == nil {
			return fmt.Errorf("%w: the subject of registry.Private is nil: pass a function that returns the id of the person", ErrOption)
		}
		if t := reflect.TypeFor[T](); !isOrPointsTo(t, d.base) {
			return fmt.Errorf("%w: registry.Private takes %s; it must take %s", ErrOption, t, d.goType)
		}
		d.private = append(d.private, private{subject: func(p any) string { return subject(valueAt[T](p)) }})
		d.privateFields = append(d.privateFields, fields)
		return nil
	}
}

// resolvePrivate finds the places of the private fields, once the serializer is known.
func (d *definition) resolvePrivate() []error {
	var problems []error
	var all []Pointer
	for i, fields := range d.privateFields {
		if len(fields) == 0 {
			fields = []string{""}
		}
		for _, field := range fields {
			at, err := d.placeOf(field)
			for _, other := range all {
				if err == nil && at.Overlaps(other) {
					err = errors.New("it overlaps another private field")
				}
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("%w: registry.Private: %s: %w", ErrOption, field, err))
				continue
			}
			all = append(all, at)
			d.private[i].at = append(d.private[i].at, at)
		}
	}
	return problems
}

func (d *definition) placeOf(field string) (Pointer, error) {
	_, plain := d.serializer.(serializer.JSON)
	switch {
	case field == "":
		return nil, nil
	case !serializer.IsJSON(d.contentType):
		return nil, fmt.Errorf("payloads are %s, of which only the whole can be private: leave the fields out", d.contentType)
	case strings.HasPrefix(field, "/"):
		return ParsePointer(field)
	case !plain:
		return nil, errors.New("its serializer is not serializer.JSON, so the place in the payload is not known: write a JSON pointer, such as /email")
	}
	var at Pointer
	t := d.base
	for name := range strings.SplitSeq(field, ".") {
		steps, next, err := stepsTo(t, name)
		if err != nil {
			return nil, err
		}
		at, t = append(at, steps...), next
	}
	return at, nil
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// stepsTo returns the steps from values of t to a field, as encoding/json writes them.
func stepsTo(t reflect.Type, field string) (steps Pointer, of reflect.Type, err error) {
	for {
		if p := reflect.PointerTo(t); t.Kind() != reflect.Pointer && (p.Implements(jsonMarshaler) || p.Implements(textMarshaler)) {
			return nil, nil, fmt.Errorf("%s writes its JSON itself: write a JSON pointer, such as /email", t)
		}
		if t.Kind() == reflect.Struct {
			break
		}
		switch t.Kind() {
		case reflect.Slice, reflect.Array, reflect.Map:
			steps = append(steps, Any)
		case reflect.Pointer:
		default:
			return nil, nil, fmt.Errorf("%s has no fields", t)
		}
		t = t.Elem()
	}
	f, has := t.FieldByName(field)
	if !has || !f.IsExported() {
		return nil, nil, fmt.Errorf("%s has no exported field %s", t, field)
	}
	for i := range f.Index {
		part := t.FieldByIndex(f.Index[:i+1])
		name, _, _ := strings.Cut(part.Tag.Get("json"), ",")
		switch {
		case part.Tag.Get("json") == "-":
			return nil, nil, fmt.Errorf("%s.%s is not in the payload", t, field)
		case name != "":
			steps = append(steps, name)
		case !part.Anonymous || i == len(f.Index)-1 && !isStruct(part.Type):
			steps = append(steps, part.Name)
		case i == len(f.Index)-1:
			return nil, nil, fmt.Errorf("%s.%s is embedded: name its fields", t, field)
		}
	}
	return steps, f.Type, nil
}

func isStruct(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}

// PrivateOf returns the private values of v, a value of a registered type or a pointer to one; nil if its type
// has none. It fails with ErrUnregistered or ErrNil.
func (r *Registry) PrivateOf(v any) ([]PrivateValues, error) {
	d, err := r.definitionOf(v)
	if err != nil || len(d.private) == 0 {
		return nil, err
	}
	p, err := pointerTo(v)
	if err != nil {
		return nil, err
	}
	values := make([]PrivateValues, len(d.private))
	for i, private := range d.private {
		values[i] = PrivateValues{Subject: private.subject(p), At: private.at}
	}
	return values, nil
}
