package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// Description describes a type to those who consume it. All fields are optional.
type Description struct {
	// Title is a short name, such as "Order placed".
	Title string
	// Text says when the notification is published and what it means, in CommonMark.
	Text string
	// Owner is who answers questions about the type, such as a team or its address.
	Owner string
	// Examples are values of the registered type, of its newest version.
	Examples []any
}

// Describe adds a description to the type, for its schema and the catalogue. Register fails with
// ErrOption if an example is of another type or cannot be serialized.
func Describe(about Description) TypeOption {
	return func(d *definition) error {
		d.about = about
		return nil
	}
}

// JSONSchema gives the JSON Schema (2020-12) of a version's payloads, instead of the one that package
// contract derives from the Go type: for types whose MarshalJSON the derivation cannot look into. It applies
// to nothing but contracts: publishing does not check payloads. Register fails with ErrOption if document is
// not a JSON object, or if the type does not have that version.
func JSONSchema(version int, document string) TypeOption {
	return func(d *definition) error {
		var object map[string]json.RawMessage
		err := json.Unmarshal([]byte(document), &object)
		if err == nil && object == nil {
			err = errors.New("it is null")
		}
		if err != nil {
			return fmt.Errorf("%w: the JSON Schema of version %d is not a JSON object: %w", ErrOption, version, err)
		}
		if d.schemas == nil {
			d.schemas = make(map[int]string)
		}
		d.schemas[version] = document
		return nil
	}
}

// TypeVersion is a version of a registered type.
type TypeVersion struct {
	Version int
	// GoType has the payload's fields; it is not a pointer.
	GoType reflect.Type
	// JSONSchema is the document that [JSONSchema] gave; "" if it gave none.
	JSONSchema string
}

// Versions returns the versions of the type with this name or alias that can be read, the oldest first. It
// returns nil for an unknown type.
func (r *Registry) Versions(name string) []TypeVersion {
	d, known := r.catalogue().byName[name]
	if !known {
		return nil
	}
	versions := make([]TypeVersion, 0, len(d.upcasters)+1)
	for _, u := range d.upcasters {
		versions = append(versions, TypeVersion{u.from, baseOf(u.input), d.schemas[u.from]})
	}
	return append(versions, TypeVersion{d.version, d.base, d.schemas[d.version]})
}

// checkDescription returns the mistakes of Describe and JSONSchema.
func (d *definition) checkDescription() []error {
	var problems []error
	for version := range d.schemas {
		if version < d.oldest || version > d.version {
			problems = append(problems, fmt.Errorf("%w: there is a JSON Schema of version %d, but the versions are %d..%d", ErrOption, version, d.oldest, d.version))
		}
	}
	for i, example := range d.about.Examples {
		if t := reflect.TypeOf(example); t == nil || !isOrPointsTo(t, d.base) {
			problems = append(problems, fmt.Errorf("%w: example %d is %v; it must be %s", ErrOption, i+1, t, d.goType))
			continue
		}
		p, err := pointerTo(example)
		if err == nil {
			_, err = d.encode(p)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%w: example %d: %w", ErrOption, i+1, err))
		}
	}
	return problems
}
