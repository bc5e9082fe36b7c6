package contract

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/sinks"
)

// Catalogue is what an AsyncAPI document says, besides the contracts.
type Catalogue struct {
	// Title is the name of the application.
	Title string
	// Version is that of the document.
	Version string
	// Outlets are the ways to consumers.
	Outlets []Outlet
}

// Outlet is a sink to which consumers listen.
type Outlet struct {
	Sink    string
	Channel sinks.Channel
	// Routes are the patterns of types that go there.
	Routes []string
	// Types are the types that go there, in order.
	Types []Outgoing
}

// Outgoing is a type that goes to a sink.
type Outgoing struct {
	Type string
	// Rules lead it there: the first whose condition holds.
	Rules []Rule
}

// Rule is a rule of a route.
type Rule struct {
	// When is the condition; "" always holds.
	When string
	// Payload has the members of the payload that the rule makes; nil if the payload stays as it is.
	Payload []string
}

const (
	jsonSchemaFormat = "application/schema+json;version=draft-2020-12"
	protobufFormat   = "application/vnd.google.protobuf;version=3"
)

type object = map[string]any

// asyncAPI is a document of AsyncAPI 3.0: https://www.asyncapi.com/docs/reference/specification/v3.0.0.
type asyncAPI struct {
	Version            string `json:"asyncapi"`
	Info               object `json:"info"`
	DefaultContentType string `json:"defaultContentType"`
	Servers            object `json:"servers,omitempty"`
	Channels           object `json:"channels"`
	Operations         object `json:"operations"`
	Components         object `json:"components"`

	set     *Set
	schemas object
	traits  object
}

// AsyncAPI returns a document of AsyncAPI 3.0 in JSON, with the ways to consumers and the contracts of what
// goes there. The same arguments give the same document.
func (s *Set) AsyncAPI(about Catalogue) ([]byte, error) {
	d := &asyncAPI{
		Version: "3.0.0", Info: object{"title": about.Title, "version": about.Version}, DefaultContentType: "application/json",
		Servers: object{}, Channels: object{}, Operations: object{}, set: s, schemas: object{}, traits: object{},
	}
	d.Components = object{"schemas": d.schemas, "messageTraits": d.traits}
	for _, outlet := range about.Outlets {
		d.add(outlet)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(d)
	return b.Bytes(), err
}

// add adds the channel and the operation of an outlet.
func (d *asyncAPI) add(o Outlet) {
	name, its := componentName(o.Sink), o.Channel
	messages, types := object{}, []string{}
	for _, out := range o.Types {
		types = append(types, out.Type)
		for _, version := range d.versions(out.Type) {
			key := componentName(out.Type)
			if version > 0 {
				key = componentName(About{Type: out.Type, Version: version}.String())
			}
			messages[key] = d.message(o, out, version)
		}
	}
	channel := object{
		"title": o.Sink, "description": paragraphs(its.Text, its.Verify), "address": nil, // not known
		"servers": d.servers(name, its), "messages": messages, "x-waybill": object{"routes": o.Routes},
	}
	if its.Address != "" {
		channel["address"] = its.Address
	}
	if parameters := parametersOf(its.Address, types); len(parameters) > 0 {
		channel["parameters"] = parameters
	}
	operation := object{"action": "send", "channel": reference("channels", name)}
	trait := object{}
	if len(its.Headers) > 0 {
		trait["headers"] = headersOf(its.Headers)
	}
	if its.ContentType != "" {
		trait["contentType"] = its.ContentType
	}
	bind(channel, its.ChannelBindings)
	bind(operation, its.OperationBindings)
	bind(trait, its.MessageBindings)
	d.Channels[name], d.Operations[name], d.traits[name] = channel, operation, trait
}

func bind(to, bindings object) {
	if bindings != nil {
		to["bindings"] = bindings
	}
}

// versions returns the versions of a type's contracts. A type without a contract has one version, whose number
// is not known.
func (d *asyncAPI) versions(typ string) []int {
	if d.set.Knows(typ) {
		return slices.Sorted(maps.Keys(d.set.types[typ]))
	}
	return []int{0}
}

// message describes a version of a type in an outlet.
func (d *asyncAPI) message(o Outlet, out Outgoing, version int) object {
	m := object{"name": out.Type, "title": out.Type, "traits": []object{reference("components", "messageTraits", componentName(o.Sink))}}
	c, known := d.set.Of(out.Type, version)
	reshaped := slices.ContainsFunc(out.Rules, func(r Rule) bool { return r.Payload != nil })
	texts := []string{"There is no contract of this type.", rulesOf(out.Rules, reshaped)}
	if known {
		m["title"] = cmp.Or(c.Title(), c.Type) + fmt.Sprintf(", version %d", c.Version)
		m["x-waybill"] = c.About
		texts = append([]string{c.Description(), texts[1]}, aboutVersion(c)...)
	}
	if payload := d.payload(o, c, !reshaped); payload != nil {
		m["payload"] = payload
	}
	switch {
	case !known:
	case c.ContentType != "":
		if !reshaped && o.Channel.ContentType == "" {
			m["contentType"] = c.ContentType
		}
	case d.schema(c) == nil:
		texts = append(texts, "The schema cannot be part of this document: `waybill types export` writes it.")
	case !reshaped && o.Channel.Body == nil:
		if examples := examplesOf(c); len(examples) > 0 {
			m["examples"] = examples
		}
	}
	if text := paragraphs(texts...); text != "" {
		m["description"] = text
	}
	return m
}

// payload returns the schema of a message; nil if it has none. c may be nil, and holds says whether payloads
// fit it.
func (d *asyncAPI) payload(o Outlet, c *Contract, holds bool) any {
	inner, standsAlone := object{}, object(nil)
	if c != nil && holds {
		if c.ContentType != "" {
			inner = nil
			if schema, ok := c.given[sinks.Protobuf]; ok {
				standsAlone = object{"schemaFormat": protobufFormat, "schema": schema.Text}
			}
		} else if standsAlone = d.schema(c); standsAlone != nil {
			inner = object{"$ref": standsAlone["$ref"].(string) + "/schema"}
		}
	}
	if o.Channel.Body == nil {
		if standsAlone == nil {
			return nil
		}
		return standsAlone
	}
	if whole := o.Channel.Body(inner); whole != nil {
		return object{"schemaFormat": jsonSchemaFormat, "schema": whole}
	}
	return nil
}

// schema returns a reference to a contract's schema among the components; nil if it cannot be there.
func (d *asyncAPI) schema(c *Contract) object {
	name := componentName(c.String())
	if _, there := d.schemas[name]; !there {
		schema, ok := c.embed("/components/schemas/" + name + "/schema")
		if !ok {
			return nil
		}
		d.schemas[name] = object{"schemaFormat": jsonSchemaFormat, "schema": schema}
	}
	return reference("components", "schemas", name)
}

// servers adds the servers of a channel, and returns references to them. A channel without a server would be on
// all of them.
func (d *asyncAPI) servers(sink string, c sinks.Channel) (references []object) {
	for _, host := range c.Hosts {
		name := componentName(c.Protocol + " " + host)
		d.Servers[name] = object{"host": host, "protocol": c.Protocol}
		references = append(references, reference("servers", name))
	}
	if len(references) > 0 {
		return references
	}
	d.Servers[sink] = object{
		"host": "{host}", "protocol": c.Protocol, "variables": object{"host": object{"description": "Not known here."}},
	}
	return []object{reference("servers", sink)}
}

// headersOf returns the schema of a message's headers.
func headersOf(headers []sinks.Header) object {
	properties, required := object{}, []string{}
	for _, h := range headers {
		properties[h.Name] = object{"type": "string", "description": h.Text}
		if !h.Optional {
			required = append(required, h.Name)
		}
	}
	return object{"type": "object", "properties": properties, "required": required}
}

var parameter = regexp.MustCompile(`{([^{}]+)}`)

// parametersOf describes the names in an address.
func parametersOf(address string, types []string) object {
	parameters := object{}
	for _, found := range parameter.FindAllStringSubmatch(address, -1) {
		described := object{"description": "The value of " + code(found[1]) + " in the notification."}
		if found[1] == "Type" {
			described["enum"] = types
		}
		parameters[found[1]] = described
	}
	return parameters
}

// examplesOf returns examples for a message.
func examplesOf(c *Contract) (examples []object) {
	for _, example := range c.Examples() {
		if isObject(example) {
			examples = append(examples, object{"payload": example})
		}
	}
	return examples
}

// rulesOf says under which conditions a type goes to a sink, and with which payloads; "" if it always does.
func rulesOf(rules []Rule, reshaped bool) string {
	var texts []string
	for _, r := range rules {
		var words []string
		if r.When != "" {
			words = append(words, "when "+code(r.When))
		}
		if r.Payload != nil {
			words = append(words, "with "+code(strings.Join(r.Payload, ", "))+" as the payload")
		}
		if len(words) == 0 && !reshaped {
			return ""
		}
		texts = append(texts, cmp.Or(strings.Join(words, " "), "always"))
	}
	text := "It is sent here " + strings.Join(texts, ", otherwise ") + "."
	switch {
	case len(rules) == 0:
		return ""
	case reshaped:
		text += " So the schema of the type does not apply."
	}
	return text
}

// aboutVersion says what consumers must know of a version.
func aboutVersion(c *Contract) (texts []string) {
	if c.Former {
		texts = append(texts, "A former version, which is published no longer. Notifications from before may still arrive.")
	}
	if c.Key {
		texts = append(texts, "Notifications with the same ordering key arrive in order.")
	}
	if len(c.Aliases) > 0 {
		texts = append(texts, "Notifications from before may have an older name of the type: "+strings.Join(c.Aliases, ", ")+".")
	}
	return texts
}

// code returns a text as code in CommonMark.
func code(text string) string {
	if strings.Contains(text, "`") {
		return "`` " + text + " ``"
	}
	return "`" + text + "`"
}

func paragraphs(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(t string) bool { return t == "" }), "\n\n")
}

func reference(path ...string) object { return object{"$ref": "#/" + strings.Join(path, "/")} }

var notInName = regexp.MustCompile(`[^\w.-]`)

// componentName returns a name for the place of something in the document, where only ASCII letters, digits,
// dots, dashes and underscores are legal.
func componentName(text string) string {
	name := strings.NewReplacer(" ", ".", ":", "-").Replace(text)
	return notInName.ReplaceAllStringFunc(name, func(r string) string { return fmt.Sprintf("_%x", r) })
}
