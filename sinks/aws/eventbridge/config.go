package eventbridge

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/access"
	"github.com/waybill-go/waybill/sinks/body"
	"github.com/waybill-go/waybill/sinks/internal/naming"
	"github.com/waybill-go/waybill/sinks/large"
)

// Limits of EventBridge: API reference, PutEvents and PutEventsRequestEntry.
const (
	maxEntries    = 10
	maxBytes      = 1<<20 - 1 // of all entries of a request: less than 1 MB
	maxDetailType = 128       // characters
	maxSource     = 256       // characters, as in patterns and archives
)

// Config has the settings of an eventbridge sink, which are below "with" in the configuration.
type Config struct {
	Bus        string        `yaml:"bus" doc:"Name or ARN of the event bus, or a template for one, such as {{.Metadata.tenant}}"`
	Source     string        `yaml:"source" doc:"Source of the events, by which rules find them, such as com.example.orders. It must not begin with aws. and is the source of the event in cloudevents, too, which is a URI. Required"`
	DetailType string        `yaml:"detail_type" doc:"Template for the detail type of an event, up to 128 characters"`
	Resources  []string      `yaml:"resources" doc:"Templates for the resources of an event, such as arn:aws:s3:::{{.Metadata.bucket}} or {{.ID}}. Empty ones are left out. Default: none"`
	Format     string        `yaml:"format" enum:"payload,envelope,cloudevents" doc:"Detail of an event: envelope (JSON with id, type, version, key, occurred_on, metadata, and payload or payload_base64), cloudevents (JSON of a CloudEvent) or payload (the payload as it is, which must be a JSON object; the id is then in no field)"`
	MaxBytes   int           `yaml:"max_bytes" doc:"Largest event in bytes, as EventBridge counts them, up to 1048575. Where the limit is still 256 KB, set it to 262143"`
	Large      large.Config  `yaml:"large" doc:"Store of details that are too large for an event"`
	Access     access.Config `yaml:",inline"`
}

var (
	_ sinks.Builder   = Config{}
	_ sinks.Defaulter = (*Config)(nil)
	_ sinks.Validator = (*Config)(nil)
	_ sinks.Described = (*Config)(nil)
)

// Build makes a sink of the configuration; see [New].
func (c Config) Build(in sinks.Instance) (sinks.Sink, error) { return New(in, c) }

// SetDefaults fills the fields that are zero: Bus default, DetailType {{.Type}}, Format envelope, MaxBytes 1048575,
// Timeout 10 s.
func (c *Config) SetDefaults() {
	c.Bus = cmp.Or(c.Bus, "default")
	c.DetailType = cmp.Or(c.DetailType, "{{.Type}}")
	c.Format = cmp.Or(c.Format, body.FormatEnvelope)
	c.MaxBytes = cmp.Or(c.MaxBytes, maxBytes)
	c.Access.SetDefaults()
	c.Access.In(c.Bus)
}

// Validate returns all mistakes, joined. Each begins with its key.
func (c *Config) Validate() error {
	filled := *c
	filled.SetDefaults()
	return filled.validate()
}

func (c *Config) validate() error {
	var wrong []error
	if _, err := naming.New(c.Bus, c.checkBus); err != nil {
		wrong = append(wrong, fmt.Errorf("bus: %w", err))
	}
	switch {
	case c.Source == "":
		wrong = append(wrong, errors.New("source: is missing; name the publisher, such as com.example.orders"))
	case strings.HasPrefix(c.Source, "aws."):
		wrong = append(wrong, errors.New("source: begins with aws., which AWS keeps for its services"))
	case !utf8.ValidString(c.Source) || utf8.RuneCountInString(c.Source) > maxSource:
		wrong = append(wrong, fmt.Errorf("source: is not a text of up to %d characters", maxSource))
	}
	if _, err := naming.New(c.DetailType, checkDetailType); err != nil {
		wrong = append(wrong, fmt.Errorf("detail_type: %w", err))
	}
	for _, resource := range c.Resources {
		if _, err := naming.New(resource, checkResource); err != nil {
			wrong = append(wrong, fmt.Errorf("resources: %w", err))
		}
	}
	if c.MaxBytes < 1024 || c.MaxBytes > maxBytes {
		wrong = append(wrong, fmt.Errorf("max_bytes: %d is outside 1024..%d", c.MaxBytes, maxBytes))
	}
	if c.Format != body.FormatCloudEvents || c.Source != "" { // otherwise the same is said twice
		wrong = append(wrong, c.body().Validate())
	}
	return errors.Join(append(wrong, c.Large.Validate(c.MaxBytes), c.Access.Validate())...)
}

// body returns the settings of the detail.
func (c *Config) body() body.Form {
	its := body.Form{Format: c.Format}
	if c.Format == body.FormatCloudEvents {
		its.Source = c.Source
	}
	return its
}

// Channel implements [sinks.Described].
func (c *Config) Channel() sinks.Channel {
	its := sinks.Channel{
		Protocol: "eventbridge",
		Address:  sinks.Address(nameOf(c.Bus)),
		Text:     "An event for each notification, of the source `" + c.Source + "`. The notification is in `detail`. Events come in any order, and may come twice.",
	}
	if c.Format == body.FormatPayload {
		its.Text += " An event lacks the id of the notification."
	}
	if c.Large.Enabled() {
		its.Text += " The detail of one that is too large has `PayloadPointer`, which says where it is stored."
	}
	c.body().Describe(&its)
	return its
}

func isARN(bus string) bool { return strings.HasPrefix(bus, "arn:") }

// nameOf returns the name of a bus that is given by its name or ARN.
func nameOf(bus string) string {
	if _, name, found := strings.Cut(bus, ":event-bus/"); found {
		return name
	}
	return bus
}

var (
	legalName = regexp.MustCompile(`^[/._A-Za-z0-9-]{1,256}$`)
	legalARN  = regexp.MustCompile(`^arn:[a-z-]+:events:[a-z0-9-]+:\d{12}:event-bus/[/._A-Za-z0-9-]{1,256}$`)
)

// checkBus returns why a text names no bus: PutEventsRequestEntry, EventBusName.
func (c *Config) checkBus(bus string) error {
	switch {
	case isARN(bus) && !legalARN.MatchString(bus):
		return fmt.Errorf("%q is not the ARN of a bus, such as arn:aws:events:eu-central-1:123456789012:event-bus/orders", bus)
	case !isARN(bus) && !legalName.MatchString(bus):
		return fmt.Errorf("%q is not the name of a bus: up to 256 letters, digits, and any of . - _ /", bus)
	}
	return c.Access.Check(bus)
}

// checkDetailType returns why a text is no detail type: PutEventsRequestEntry, DetailType.
func checkDetailType(text string) error {
	if text == "" || !utf8.ValidString(text) || utf8.RuneCountInString(text) > maxDetailType {
		return fmt.Errorf("%q is not a text of up to %d characters", text, maxDetailType)
	}
	return nil
}

// checkResource returns why a text is no resource: PutEventsRequestEntry, Resources. It may be empty.
func checkResource(text string) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("%q is not UTF-8", text)
	}
	return nil
}
