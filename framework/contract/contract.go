// Package contract has the contracts of notification types: the JSON Schema (2020-12) of each version, and
// the rules by which one version of a program may follow another without breaking consumers.
//
// The schemas come from the Go types of a registry ([FromTypes]), from files of programs in other languages
// ([Set.Add]), or from a folder that [Set.Write] wrote ([ReadFolder]). [Compare] finds what a change breaks,
// and [Set.Validate] checks payloads.
package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/serializer"
	"github.com/waybill-go/waybill/sinks"
)

// ErrSchema means that a schema cannot be made or read.
var ErrSchema = errors.New("no usable schema")

// ErrNoContracts means that a folder has no contract. It wraps [ErrSchema].
var ErrNoContracts = fmt.Errorf("%w: the folder has no contract, such as order.placed.v1.json", ErrSchema)

// About says what a schema belongs to. It is the value of the keyword x-waybill.
type About struct {
	Type    string `json:"type"`
	Version int    `json:"version"`
	// Owner is who answers questions about the type.
	Owner string `json:"owner,omitempty"`
	// Key reports whether the notifications have an ordering key.
	Key bool `json:"key,omitempty"`
	// Former reports that the version is only read: newer ones are published.
	Former bool `json:"former,omitempty"`
	// ContentType is that of the payloads, if they are not application/json.
	ContentType string `json:"content_type,omitempty"`
	// Aliases are older names of the type under which notifications may be stored.
	Aliases []string `json:"aliases,omitempty"`
	// Inferred is from how many payloads the schema was inferred; 0 for one that the publisher gives.
	Inferred int `json:"inferred,omitempty"`
}

// String returns type and version, such as "order.placed v2".
func (a About) String() string { return fmt.Sprintf("%s v%d", a.Type, a.Version) }

// Contract is the contract of a version of a type. It is immutable and safe for concurrent use.
type Contract struct {
	About
	// Text is the JSON Schema, indented, with examples and the keyword x-waybill.
	Text []byte

	given  map[sinks.SchemaLanguage]sinks.Schema
	object map[string]any // Text, decoded

	schema, lenient compiled
}

// compiled is a schema that is compiled when it is first used.
type compiled struct {
	once   sync.Once
	schema *jsonschema.Schema
	quick  *quick
	names  map[string]bool // of the properties that the schema declares
	err    error
}

func (c *compiled) compile(name string, object func() map[string]any) error {
	c.once.Do(func() {
		schema := object()
		if c.schema, c.err = compile(name, schema); c.err == nil {
			c.quick = newQuick(c.schema, make(map[*jsonschema.Schema]*quick))
			c.names = make(map[string]bool)
			declared(schema, c.names)
		}
	})
	return c.err
}

// Title returns the schema's title, or "".
func (c *Contract) Title() string { return text(c.object["title"]) }

// Description returns the schema's description, or "".
func (c *Contract) Description() string { return text(c.object["description"]) }

// Examples returns the examples as JSON.
func (c *Contract) Examples() []json.RawMessage {
	var s struct {
		Examples []json.RawMessage `json:"examples"`
	}
	_ = json.Unmarshal(c.Text, &s) // it was decoded before
	return s.Examples
}

// Validate checks a payload of JSON. Its error has the JSON Pointer of each value that is wrong, and no
// values. Binary payloads, such as those of Protobuf, are not checked.
func (c *Contract) Validate(payload []byte) error {
	return c.validate(&c.schema, func() map[string]any { return c.object }, payload)
}

// ValidateStored is Validate for a payload that may be older than the schema of its version: it may lack
// fields that are required, since a field can be added without a new version.
func (c *Contract) ValidateStored(payload []byte) error {
	return c.validate(&c.lenient, func() map[string]any { return lenient(c.object) }, payload)
}

func (c *Contract) validate(by *compiled, object func() map[string]any, payload []byte) error {
	if c.ContentType != "" {
		return nil
	}
	if err := by.compile(c.String(), object); err != nil {
		return err
	}
	if by.quick.recognizes(payload) {
		return nil
	}
	misfit := func(text string) error {
		return fmt.Errorf("the payload does not fit the schema of %s: %s", c.About, text)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
	switch fault := excess(value, 0); {
	case !utf8.Valid(payload):
		return misfit("it is not UTF-8")
	case err != nil: // its text has a part of the payload
		return misfit("it is not JSON")
	case fault != "":
		return misfit(fault)
	}
	var wrong *jsonschema.ValidationError
	if err := by.schema.Validate(value); errors.As(err, &wrong) {
		return misfit(by.explain(wrong))
	} else if err != nil {
		return misfit("it cannot be judged")
	}
	return nil
}

// compile compiles a schema, which checks it. A schema in several files is refused: nothing is fetched.
func compile(name string, object map[string]any) (*jsonschema.Schema, error) {
	const address = "waybill:///schema" // relative references need a hierarchy
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	compiler.AssertContent()
	compiler.UseLoader(noLoader{})
	err := compiler.AddResource(address, object)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrSchema, name, err)
	}
	schema, err := compiler.Compile(address)
	var wrong *jsonschema.ValidationError
	if invalid := (*jsonschema.SchemaValidationError)(nil); errors.As(err, &invalid) && errors.As(invalid.Err, &wrong) {
		return nil, fmt.Errorf("%w: %s: it is not a JSON Schema (2020-12): %s", ErrSchema, name, new(compiled).explain(wrong))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %s", ErrSchema, name, strings.ReplaceAll(err.Error(), address, ""))
	}
	for s, hops := schema, 0; s != nil; s, hops = s.Ref, hops+1 {
		if hops > 0 && s == schema || hops > maxNesting {
			return nil, fmt.Errorf("%w: %s: it only refers to itself", ErrSchema, name)
		}
	}
	return schema, nil
}

type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is another document: put its definitions into $defs", strings.TrimPrefix(url, "waybill:///"))
}

// parse makes a contract of a JSON Schema. What the schema says of itself in x-waybill is replaced by about.
func parse(about About, document []byte) (*Contract, error) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrSchema, about, err)
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%w: %s: the document is not a JSON object", ErrSchema, about)
	}
	c := &Contract{About: about, object: object, Text: document}
	return c, c.schema.compile(about.String(), func() map[string]any { return object })
}

// Set is the contracts of a program. The zero value is empty. Its methods are safe for concurrent use,
// except Add and Give.
type Set struct {
	types    map[string]map[int]*Contract // also by alias
	failures map[string]error             // why registered types have none
}

// Lazy returns a set for sinks, which they need only for some encodings. Each call must return the same set.
type Lazy func() (*Set, error)

var _ sinks.Contracts = Lazy(nil)

// Schema is that of the set.
func (l Lazy) Schema(typ string, version int, language sinks.SchemaLanguage) (sinks.Schema, error) {
	set, _ := l() // the set has the error of each type
	return set.Schema(typ, version, language)
}

// Validate is that of the set.
func (l Lazy) Validate(typ string, version int, payload []byte) error {
	set, _ := l()
	return set.Validate(typ, version, payload)
}

// Failure returns why a registered type has no contract of one of its versions; nil if it has all.
func (s *Set) Failure(typ string) error { return s.failures[typ] }

// Of returns the contract of a type's version; false if the set has none. typ may be an alias.
func (s *Set) Of(typ string, version int) (*Contract, bool) {
	if s == nil {
		return nil, false
	}
	c, ok := s.types[typ][version]
	return c, ok
}

// All returns the contracts, sorted by type and version.
func (s *Set) All() []*Contract {
	if s == nil {
		return nil
	}
	var all []*Contract
	for _, name := range slices.Sorted(maps.Keys(s.types)) {
		for _, version := range slices.Sorted(maps.Keys(s.types[name])) {
			if c := s.types[name][version]; c.Type == name {
				all = append(all, c)
			}
		}
	}
	return all
}

// Knows reports whether the set has a contract of any version of a type.
func (s *Set) Knows(typ string) bool { return s != nil && len(s.types[typ]) > 0 }

// Add adds a contract with a JSON Schema. about.Version may be any version that notifications have. It fails
// with [ErrSchema] if the document is not a JSON Schema, refers to another document, or if the set already
// has that version.
func (s *Set) Add(about About, document []byte) error {
	if err := notification.ValidateType(about.Type); err != nil {
		return err
	}
	c, err := parse(about, document)
	if err != nil {
		return err
	}
	return s.add(c)
}

func (s *Set) add(c *Contract) error {
	if s.types == nil {
		s.types = make(map[string]map[int]*Contract)
	}
	for _, name := range append([]string{c.Type}, c.Aliases...) {
		if s.types[name] == nil {
			s.types[name] = make(map[int]*Contract)
		}
		other, taken := s.types[name][c.Version]
		if taken && name == c.Type && other.Type == name {
			return fmt.Errorf("%w: there are two of %s", ErrSchema, c.About)
		}
		if !taken || name == c.Type { // a name has precedence over an alias
			s.types[name][c.Version] = c
		}
	}
	return nil
}

// Give adds a schema in another language to all versions of a type, or to one version. version 0 means all. It
// fails with [ErrSchema] if the set does not have the type's version.
func (s *Set) Give(typ string, version int, l sinks.SchemaLanguage, schema sinks.Schema) error {
	found := false
	for v, c := range s.types[typ] {
		if version == v || version == 0 {
			if c.given == nil {
				c.given = make(map[sinks.SchemaLanguage]sinks.Schema)
			}
			c.given[l], found = schema, true
		}
	}
	if !found {
		return fmt.Errorf("%w: there is no %s for the %s schema", ErrSchema, About{Type: typ, Version: version}, l)
	}
	return nil
}

var _ sinks.Contracts = (*Set)(nil)

// Schema implements [sinks.Contracts].
func (s *Set) Schema(typ string, version int, l sinks.SchemaLanguage) (sinks.Schema, error) {
	c, err := s.need(typ, version)
	if err != nil {
		return sinks.Schema{}, err
	}
	if given, ok := c.given[l]; ok {
		return given, nil
	}
	if l == sinks.JSONSchema && c.ContentType == "" {
		return sinks.Schema{Text: string(c.Text)}, nil
	}
	return sinks.Schema{}, fmt.Errorf("%w of %s in %s", sinks.ErrNoSchema, c.About, l)
}

// Validate implements [sinks.Contracts].
func (s *Set) Validate(typ string, version int, payload []byte) error {
	c, err := s.need(typ, version)
	if err != nil {
		return err
	}
	return c.Validate(payload)
}

// Check is Validate for a notification. It fails with [sinks.ErrNoSchema] if there is no schema of its version.
// A payload that is not JSON by its content type is not checked.
func (s *Set) Check(e *notification.Envelope) error {
	if contentType := e.Metadata.Get(notification.MetadataContentType); contentType != "" && !serializer.IsJSON(contentType) {
		return nil
	}
	return s.Validate(e.Type, e.Version, e.Payload)
}

func (s *Set) need(typ string, version int) (*Contract, error) {
	if c, ok := s.Of(typ, version); ok {
		return c, nil
	}
	about := About{Type: typ, Version: version}
	if err := s.Failure(typ); err != nil {
		return nil, fmt.Errorf("%w of %s: %w", sinks.ErrNoSchema, about, err)
	}
	if !s.Knows(typ) {
		return nil, fmt.Errorf("%w of %s: give one under types in the configuration, or register the type", sinks.ErrNoSchema, about)
	}
	var versions []string
	for _, v := range slices.Sorted(maps.Keys(s.types[typ])) {
		versions = append(versions, fmt.Sprintf("v%d", v))
	}
	return nil, fmt.Errorf("%w of %s; there is one of %s", sinks.ErrNoSchema, about, strings.Join(versions, ", "))
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
