package contract

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/serializer"
)

// keyword is the keyword of a schema that has About.
const keyword = "x-waybill"

// FromTypes derives the contracts of all versions of the registered types. Their comments become
// descriptions, if the current folder is inside the module that has their sources.
//
// Its error joins all mistakes and names the fields that JSON cannot represent or that need a given schema:
// [ErrSchema]. The set then has the other contracts.
func FromTypes(types *registry.Registry) (*Set, error) {
	s := &Set{failures: make(map[string]error)}
	if types == nil {
		return s, nil
	}
	var problems []error
	from := newSources()
	for _, info := range types.Types() {
		for _, version := range types.Versions(info.Name) {
			c, err := derive(types, info, version, from)
			if err == nil {
				err = s.add(c)
			}
			if err != nil {
				problems = append(problems, err)
				s.failures[info.Name] = errors.Join(s.failures[info.Name], err)
			}
		}
	}
	return s, errors.Join(problems...)
}

// derive makes the contract of a registered version.
func derive(types *registry.Registry, info registry.Info, version registry.TypeVersion, from *sources) (*Contract, error) {
	about := About{
		Type: info.Name, Version: version.Version, Owner: info.Description.Owner, Key: info.HasKey,
		Former: version.Version < info.Version, Aliases: info.Aliases,
	}
	if !serializer.IsJSON(info.ContentType) {
		about.ContentType = info.ContentType
	}
	document := []byte(version.JSONSchema)
	var err error
	switch {
	case version.JSONSchema != "":
	case about.ContentType != "" || isMessage(version.GoType):
		document = []byte(`{"$schema": "https://json-schema.org/draft/2020-12/schema"}`) // anything
	default:
		if document, err = describe(version.GoType, from); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrSchema, about, err)
		}
	}
	var examples []json.RawMessage
	for _, example := range info.Description.Examples {
		if about.Former || about.ContentType != "" {
			break
		}
		e, err := types.Encode(example)
		if err != nil {
			return nil, err
		}
		examples = append(examples, e.Payload)
	}
	if document, err = complete(document, about, info.Description, examples, version.JSONSchema != ""); err != nil {
		return nil, err
	}
	c, err := parse(about, document)
	if err != nil {
		return nil, err
	}
	for i, example := range examples {
		if err := c.Validate(example); err != nil {
			return nil, fmt.Errorf("%w: %s: example %d: %w", ErrSchema, about, i+1, err)
		}
	}
	return c, nil
}

// complete returns a schema with what a description and About add to it, indented. What a given schema says
// itself has precedence. The description of a derived one is a comment of its Go type, and has not.
func complete(document []byte, about About, description registry.Description, examples []json.RawMessage, given bool) ([]byte, error) {
	own, err := membersOf(document)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrSchema, about, err)
	}
	own = slices.DeleteFunc(own, func(m member) bool { return m.name == keyword })
	all := []member{{"$schema", "https://json-schema.org/draft/2020-12/schema"}}
	if description.Title != "" {
		all = append(all, member{"title", description.Title})
	}
	if description.Text != "" {
		all = append(all, member{"description", description.Text})
	}
	all = append(all, member{keyword, about})
	for _, m := range own {
		switch at := slices.IndexFunc(all, func(a member) bool { return a.name == m.name }); {
		case at < 0:
			all = append(all, m)
		case given || m.name == "$schema":
			all[at] = m
		}
	}
	if len(examples) > 0 && !slices.ContainsFunc(all, func(m member) bool { return m.name == "examples" }) {
		all = append(all, member{"examples", examples})
	}
	slices.SortStableFunc(all, func(a, b member) int { return rank(a.name) - rank(b.name) })
	return encode(all)
}

// rank puts what a reader wants to know first to the beginning of a schema, and definitions to its end.
func rank(name string) int {
	order := []string{"$schema", "$id", "title", "description", keyword, "type", "properties", "required", "", "examples", "$defs"}
	if at := slices.Index(order, name); at >= 0 {
		return at
	}
	return slices.Index(order, "")
}

// member is a member of a JSON object.
type member struct {
	name  string
	value any
}

// membersOf returns the members of a JSON object in their order.
func membersOf(object []byte) (members []member, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return nil, cmp.Or(err, errors.New("the document is not a JSON object"))
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		members = append(members, member{fmt.Sprint(name), value})
	}
	return members, nil
}

// encode returns a JSON object, indented, with a newline at its end.
func encode(members []member) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := e.Encode(m.name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := e.Encode(m.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	var indented bytes.Buffer
	if err := json.Indent(&indented, b.Bytes(), "", "  "); err != nil {
		return nil, err
	}
	indented.WriteByte('\n')
	return indented.Bytes(), nil
}
