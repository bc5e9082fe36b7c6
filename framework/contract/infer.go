package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
)

// Inference infers contracts from payloads, for consumers whose publisher gives none. Names of fields get
// into the schemas, but no values, which are private. The zero value is empty. It is not safe for concurrent
// use.
type Inference struct {
	versions map[string]*inferred // by type and version
}

// inferred is what the payloads of a version have in common.
type inferred struct {
	About
	payloads     shape
	others, keys int // others are no JSON, or of a type whose name is not legal
}

// Add adds a payload of a version, and whether its notification has an ordering key.
func (i *Inference) Add(typ string, version int, hasKey bool, payload []byte) {
	about := About{Type: typ, Version: version}
	found, ok := i.versions[about.String()]
	if !ok {
		if i.versions == nil {
			i.versions = make(map[string]*inferred)
		}
		found = &inferred{About: about}
		i.versions[about.String()] = found
	}
	var value any
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	if notification.ValidateType(typ) != nil || !utf8.Valid(payload) || !json.Valid(payload) || d.Decode(&value) != nil {
		found.others++
		return
	}
	if hasKey {
		found.keys++
	}
	found.payloads.add(value, 0)
}

// Contracts returns a contract of each version: that of given, or else an inferred one. others counts, by
// type and version, the payloads that are not JSON, and those of types whose names are not legal; a version with
// no others has no contract.
func (i *Inference) Contracts(given *Set) (set *Set, others map[string]int, err error) {
	set, others = new(Set), make(map[string]int)
	for name, found := range i.versions {
		if c, ok := given.Of(found.Type, found.Version); ok {
			if _, added := set.Of(c.Type, c.Version); !added { // by an alias
				err = set.add(c)
			}
		} else {
			if found.others > 0 {
				others[name] = found.others
			}
			err = found.addTo(set)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return set, others, nil
}

func (f *inferred) addTo(set *Set) error {
	about := f.About
	if about.Inferred = f.payloads.seen; about.Inferred == 0 {
		return nil
	}
	about.Key = f.keys == about.Inferred
	document, err := json.Marshal(f.payloads.schema())
	if err != nil {
		return err
	}
	document, err = complete(document, about, registry.Description{Text: fmt.Sprintf(
		"Inferred from %d of the payloads, not given by the publisher: others may have more fields, lack some, or have other kinds of values.", about.Inferred)}, nil, false)
	if err != nil {
		return err
	}
	return set.Add(about, document)
}

// shape is what the values at one place have in common. The zero value has seen none.
type shape struct {
	types         map[string]bool
	seen, objects int  // how many values, and how many of them are objects
	texts         bool // there are texts that are no times
	fields        map[string]*shape
	values        *shape // of objects whose members are data; they have no fields then
	items         *shape
}

// The limits of a shape.
const (
	maxFields = 100 // an object with more is a map
	maxNested = 32  // values nested deeper may be anything
)

func (s *shape) add(value any, depth int) {
	if s.types == nil {
		s.types = make(map[string]bool)
	}
	s.seen++
	switch v := value.(type) {
	case nil:
		s.types["null"] = true
	case bool:
		s.types["boolean"] = true
	case json.Number:
		kind := "integer"
		if strings.ContainsAny(v.String(), ".eE") {
			kind = "number"
		}
		s.types[kind] = true
	case string:
		s.types["string"] = true
		_, err := time.Parse(time.RFC3339, v) // which also accepts what RFC 3339 does not
		s.texts = s.texts || err != nil || !moment.MatchString(v)
	case []any:
		s.types["array"] = true
		for _, item := range v {
			if s.items == nil {
				s.items = new(shape)
			}
			if depth < maxNested {
				s.items.add(item, depth+1)
			}
		}
	case map[string]any:
		s.types["object"] = true
		s.objects++
		for name, member := range v {
			if field := s.member(name); depth < maxNested {
				field.add(member, depth+1)
			}
		}
	}
}

// named matches what can be the name of a field, and id what is rather data, such as a part of an address, a
// number or a date.
var (
	named = regexp.MustCompile(`^[\pL_$@][\pL\pN_$.:-]{0,63}$`)
	id    = regexp.MustCompile(`[0-9]{5}|.@|[0-9a-fA-F]{8}-`)
)

// moment matches times as in RFC 3339.
var moment = regexp.MustCompile(`^.{10}T\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):\d\d)$`)

// member returns the shape of an object's member.
func (s *shape) member(name string) *shape {
	field, ok := s.fields[name]
	switch {
	case s.values != nil:
		return s.values
	case ok:
		return field
	case len(s.fields) == maxFields || !named.MatchString(name) || id.MatchString(name):
		return s.asMap()
	case s.fields == nil:
		s.fields = make(map[string]*shape)
	}
	s.fields[name] = new(shape)
	return s.fields[name]
}

// asMap makes the members of an object data.
func (s *shape) asMap() *shape {
	if s.values == nil {
		fields := s.fields
		s.values, s.fields = new(shape), nil
		for _, field := range fields {
			s.values.merge(field)
		}
	}
	return s.values
}

// merge adds the values of another shape.
func (s *shape) merge(other *shape) {
	if s.types == nil {
		s.types = make(map[string]bool)
	}
	maps.Copy(s.types, other.types)
	s.seen += other.seen
	s.objects += other.objects
	s.texts = s.texts || other.texts
	if other.items != nil {
		if s.items == nil {
			s.items = new(shape)
		}
		s.items.merge(other.items)
	}
	if other.values != nil {
		s.asMap().merge(other.values)
	}
	for name, field := range other.fields {
		s.member(name).merge(field)
	}
}

// schema returns the JSON Schema of the values.
func (s *shape) schema() map[string]any {
	schema := make(map[string]any)
	types := slices.DeleteFunc(slices.Sorted(maps.Keys(s.types)), func(t string) bool { return t == "integer" && s.types["number"] })
	switch len(types) {
	case 0:
		return schema
	case 1:
		schema["type"] = types[0]
	default:
		schema["type"] = types
	}
	if s.types["string"] && !s.texts {
		schema["format"] = "date-time"
	}
	if s.items != nil {
		schema["items"] = s.items.schema()
	}
	if s.values != nil {
		schema["additionalProperties"] = s.values.schema()
	}
	properties := make(map[string]any)
	var required []string
	for _, name := range slices.Sorted(maps.Keys(s.fields)) {
		properties[name] = s.fields[name].schema()
		if s.fields[name].seen == s.objects {
			required = append(required, name)
		}
	}
	if len(properties) > 0 {
		schema["properties"] = properties
	}
	if required != nil {
		schema["required"] = required
	}
	return schema
}
