package sns

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/access"
	"github.com/waybill-go/waybill/sinks/aws/internal/batches"
	"github.com/waybill-go/waybill/sinks/body"
	"github.com/waybill-go/waybill/sinks/internal/naming"
	"github.com/waybill-go/waybill/sinks/large"
)

// Limits of SNS: SNS API reference, PublishBatch.
const (
	maxEntries      = 10
	defaultMaxBytes = 256 << 10 // of a topic without MaximumMessageSize
	maxSubject      = 100
)

// Config has the settings of an sns sink, which are below "with" in the configuration.
type Config struct {
	Topic    string        `yaml:"topic" doc:"ARN of the topic, or a name, which is that of a topic in the account of the credentials and in the region; or a template for one, such as {{.Metadata.tenant}}-orders.fifo. What ends with .fifo is a FIFO topic. With endpoint it must be an ARN. Required"`
	Subject  string        `yaml:"subject" doc:"Template for the subject of mails to subscribers, up to 100 characters of ASCII, such as {{.Type}}. Default: none"`
	Group    string        `yaml:"group" doc:"Template for the message group in a standard topic, such as {{.Metadata.tenant}}, by which subscribed queues share their consumers fairly. In a FIFO topic the group is the ordering key. Default: none"`
	MaxBytes int           `yaml:"max_bytes" doc:"Largest message and request in bytes, with attributes, up to 1048576; not above the topic's MaximumMessageSize"`
	Body     body.Config   `yaml:",inline"`
	Large    large.Config  `yaml:"large" doc:"Store of bodies that are too large for a message, in the form of Amazon's extended client libraries"`
	Access   access.Config `yaml:",inline"`
}

var (
	_ sinks.Builder   = Config{}
	_ sinks.Defaulter = (*Config)(nil)
	_ sinks.Validator = (*Config)(nil)
	_ sinks.Described = (*Config)(nil)
)

// Build makes a sink of the configuration; see [New].
func (c Config) Build(in sinks.Instance) (sinks.Sink, error) { return New(in, c) }

// SetDefaults fills the fields that are zero: MaxBytes 256 KiB, Format payload, Timeout 10 s.
func (c *Config) SetDefaults() {
	c.MaxBytes = cmp.Or(c.MaxBytes, defaultMaxBytes)
	c.Body.Format = cmp.Or(c.Body.Format, body.FormatPayload)
	c.Access.SetDefaults()
	c.Access.In(c.Topic)
}

// Validate returns all mistakes, joined. Each begins with its key.
func (c *Config) Validate() error {
	filled := *c
	filled.SetDefaults()
	return filled.validate()
}

func (c *Config) validate() error {
	var wrong []error
	if _, err := naming.New(c.Topic, c.checkTopic); err != nil {
		wrong = append(wrong, fmt.Errorf("topic: %w", err))
	} else if c.Access.Endpoint != "" && !isARN(c.Topic) {
		wrong = append(wrong, errors.New("topic: with endpoint, give the ARN of the topic, such as arn:aws:sns:eu-central-1:123456789012:orders, since only AWS knows the account"))
	}
	if _, err := naming.New(c.Subject, checkSubject); err != nil {
		wrong = append(wrong, fmt.Errorf("subject: %w", err))
	}
	if c.Group != "" && batches.IsFIFO(c.Topic) {
		wrong = append(wrong, errors.New("group: is for standard topics; in a FIFO topic the ordering key is the group"))
	} else if _, err := naming.New(c.Group, anyGroup); err != nil {
		wrong = append(wrong, fmt.Errorf("group: %w", err))
	}
	if c.MaxBytes < 1024 || c.MaxBytes > batches.MaxMessage {
		wrong = append(wrong, fmt.Errorf("max_bytes: %d is outside 1024..%d", c.MaxBytes, batches.MaxMessage))
	}
	return errors.Join(append(wrong, c.Body.Validate(batches.IsAttribute, batches.MoreAttributes(c.Large)), c.Large.Validate(c.MaxBytes), c.Access.Validate())...)
}

// Channel implements [sinks.Described].
func (c *Config) Channel() sinks.Channel {
	its := sinks.Channel{
		Protocol: "sns",
		Address:  sinks.Address(nameOf(c.Topic)),
		Text:     "A message for each notification, for all subscriptions whose filters accept it. It may come twice, with the same id.",
	}
	if batches.IsFIFO(c.Topic) {
		its.Text = "A message for each notification, for all subscriptions whose filters accept it. Its group is the ordering key, so that FIFO queues receive the messages of a key in order. Its deduplication id is the notification's id: within five minutes a message comes once."
	}
	c.Body.Describe(&its)
	c.Large.Describe(&its)
	return its
}

func isARN(topic string) bool { return strings.HasPrefix(topic, "arn:") }

// nameOf returns the name of a topic that is given by its name or ARN.
func nameOf(topic string) string {
	if isARN(topic) {
		return topic[strings.LastIndexByte(topic, ':')+1:]
	}
	return topic
}

var (
	legalName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,251}(\.fifo)?$|^[A-Za-z0-9_-]{252,256}$`)
	legalARN  = regexp.MustCompile(`^arn:[a-z-]+:sns:([a-z0-9-]+):\d{12}:[A-Za-z0-9_.-]+$`)
)

// checkTopic returns why a text names no topic: CreateTopic, Name.
func (c *Config) checkTopic(topic string) error {
	switch {
	case topic == "":
		return errors.New("is missing")
	case isARN(topic) && !legalARN.MatchString(topic):
		return fmt.Errorf("%q is not the ARN of a topic, such as arn:aws:sns:eu-central-1:123456789012:orders", topic)
	case !legalName.MatchString(nameOf(topic)):
		return fmt.Errorf("%q is not the name of a topic: up to 256 letters, digits, dashes and underscores, and .fifo at the end of that of a FIFO topic", nameOf(topic))
	}
	return c.Access.Check(topic)
}

var legalSubject = regexp.MustCompile(`^([!-~][ -~]*)?$`)

// checkSubject returns why a text is no subject of a message: Publish, Subject.
func checkSubject(subject string) error {
	if len(subject) > maxSubject || !legalSubject.MatchString(subject) {
		return fmt.Errorf("%q is not a subject of up to %d characters of ASCII without line ends", subject, maxSubject)
	}
	return nil
}

// anyGroup accepts any text as the group, of which batches.ID makes a legal one.
func anyGroup(string) error { return nil }
