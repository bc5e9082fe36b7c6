// Package body makes the bodies and attributes of messages, for sinks of services whose messages have a body and perhaps
// attributes, such as those of clouds.
package body

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/cloudevents"
	"github.com/waybill-go/waybill/sinks/internal/envelope"
)

// Values of Config.Format.
const (
	FormatPayload     = "payload"     // the payload; the rest is in attributes, if the service has them
	FormatEnvelope    = "envelope"    // JSON of the whole notification
	FormatCloudEvents = "cloudevents" // JSON of a CloudEvent
)

// Names of the attributes that every message has. A message without a key lacks AttributeKey.
const (
	AttributeID         = "id"
	AttributeType       = "type"
	AttributeVersion    = "version"
	AttributeOccurredOn = "occurred-on"
	AttributeKey        = "key"
)

// Form is the form of bodies. Its fields stand among those of a sink.
type Form struct {
	Format string `yaml:"format" enum:"payload,envelope,cloudevents" doc:"Body of a message: payload (the payload as it is, and the rest in attributes, if the service has any), envelope (JSON with id, type, version, key, occurred_on, metadata, and payload or payload_base64) or cloudevents (JSON of a CloudEvent)"`
	Source string `yaml:"source" doc:"URI of the publisher in cloudevents, absolute or relative, such as https://shop.example/orders or /shop. Source and id together make an event unique. Required for cloudevents"`
}

// Config is the form of messages that have attributes.
type Config struct {
	Form       `yaml:",inline"`
	Attributes []string `yaml:"attributes" doc:"Names of the metadata that become attributes of a message, which filters of subscribers can use, besides id, type, version, occurred-on and key. Default: none"`
}

// Validate returns all mistakes, joined. Each begins with its key.
func (f Form) Validate() error {
	switch {
	case f.Format == FormatCloudEvents:
		if err := cloudevents.CheckSource(f.Source); err != nil {
			return fmt.Errorf("source: %w", err)
		}
	case f.Format != FormatPayload && f.Format != FormatEnvelope:
		return fmt.Errorf("format: %q is not offered; use %s, %s or %s", f.Format, FormatPayload, FormatEnvelope, FormatCloudEvents)
	case f.Source != "":
		return fmt.Errorf("source: is for format %s, but format is %s", FormatCloudEvents, f.Format)
	}
	return nil
}

// Validate returns all mistakes, joined. Each begins with its key. legal reports whether metadata can become an attribute
// of that name, and most is how many attributes the service permits besides those that every message has.
func (c Config) Validate(legal func(name string) bool, most int) error {
	mistakes := []error{c.Form.Validate()}
	if len(c.Attributes) > most {
		mistakes = append(mistakes, fmt.Errorf("attributes: has %d names, the limit is %d besides those that every message has", len(c.Attributes), most))
	}
	for i, name := range c.Attributes {
		switch {
		case IsOwn(name):
			mistakes = append(mistakes, fmt.Errorf("attributes: every message already has %s", name))
		case slices.Contains(c.Attributes[:i], name):
			mistakes = append(mistakes, fmt.Errorf("attributes: %s is there twice", name))
		case !legal(name):
			mistakes = append(mistakes, fmt.Errorf("attributes: %q is not a legal name of an attribute", name))
		}
	}
	return errors.Join(mistakes...)
}

// IsOwn reports whether every message has an attribute of that name.
func IsOwn(name string) bool {
	return slices.Contains([]string{AttributeID, AttributeType, AttributeVersion, AttributeOccurredOn, AttributeKey}, name)
}

// Of returns the body of a notification. It may be the payload itself.
func (f Form) Of(e *notification.Envelope) []byte {
	switch media := cloudevents.ContentType(e.Metadata, cloudevents.IsString); f.Format {
	case FormatEnvelope:
		return envelope.Append(nil, e, e.Metadata, media)
	case FormatCloudEvents:
		return cloudevents.Append(nil, e, f.Source, e.Metadata, media)
	}
	return e.Payload
}

// Attribute is an attribute of a message.
type Attribute struct{ Name, Value string }

// AttributesOf returns the attributes of a notification. Those without a value are left out.
func (c Config) AttributesOf(e *notification.Envelope) []Attribute {
	all := append(make([]Attribute, 0, 5+len(c.Attributes)),
		Attribute{AttributeID, e.ID},
		Attribute{AttributeType, e.Type},
		Attribute{AttributeVersion, strconv.Itoa(e.Version)},
		Attribute{AttributeOccurredOn, envelope.FormatTime(e.OccurredOn)},
		Attribute{AttributeKey, e.Key},
	)
	for _, name := range c.Attributes {
		all = append(all, Attribute{name, e.Metadata.Get(name)})
	}
	return slices.DeleteFunc(all, func(a Attribute) bool { return a.Value == "" })
}

// Describe adds the form of bodies to the description of a channel.
func (f Form) Describe(its *sinks.Channel) {
	switch f.Format {
	case FormatEnvelope:
		its.ContentType, its.Body = "application/json", envelope.Schema
	case FormatCloudEvents:
		its.ContentType, its.Body = "application/cloudevents+json", cloudevents.Schema
	}
}

// Describe adds the form of messages to the description of a channel.
func (c Config) Describe(its *sinks.Channel) {
	c.Form.Describe(its)
	its.Headers = append(its.Headers,
		sinks.Header{Name: AttributeID, Text: "Id of the notification, the same on every attempt."},
		sinks.Header{Name: AttributeType, Text: "Name of the notification's type."},
		sinks.Header{Name: AttributeVersion, Text: "Version of the payload."},
		sinks.Header{Name: AttributeOccurredOn, Text: "When it occurred: RFC 3339 in UTC.", Optional: true},
		sinks.Header{Name: AttributeKey, Text: "Ordering key.", Optional: true},
	)
	for _, name := range c.Attributes {
		its.Headers = append(its.Headers, sinks.Header{Name: name, Text: "Metadata of the notification.", Optional: true})
	}
}
