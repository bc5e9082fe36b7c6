package sqs

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/access"
	"github.com/waybill-go/waybill/sinks/aws/internal/batches"
	"github.com/waybill-go/waybill/sinks/body"
	"github.com/waybill-go/waybill/sinks/internal/naming"
	"github.com/waybill-go/waybill/sinks/large"
)

// Limits of SQS: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html
const (
	maxEntries = 10
	maxBytes   = batches.MaxMessage
)

// Config has the settings of an sqs sink, which are below "with" in the configuration.
type Config struct {
	Queue    string        `yaml:"queue" doc:"Name, URL or ARN of the queue, or a template for one, such as {{.Metadata.tenant}}-orders.fifo. A name that ends with .fifo is that of a FIFO queue. Required"`
	Group    string        `yaml:"group" doc:"Template for the message group in a standard queue, such as {{.Metadata.tenant}}, by which SQS shares the consumers fairly. In a FIFO queue the group is the ordering key. Default: none"`
	MaxBytes int           `yaml:"max_bytes" doc:"Largest message in bytes, with its attributes, up to 1048576; not above the queue's MaximumMessageSize"`
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

// SetDefaults fills the fields that are zero: MaxBytes 1 MiB, Format payload, Timeout 10 s.
func (c *Config) SetDefaults() {
	c.MaxBytes = cmp.Or(c.MaxBytes, maxBytes)
	c.Body.Format = cmp.Or(c.Body.Format, body.FormatPayload)
	c.Access.SetDefaults()
	c.Access.In(c.Queue)
	if u, err := url.Parse(c.Queue); isURL(c.Queue) && err == nil {
		if parts := regionOfHost.FindStringSubmatch(u.Host); parts != nil {
			c.Access.Region = cmp.Or(c.Access.Region, parts[1])
		}
		c.Access.Endpoint = cmp.Or(c.Access.Endpoint, u.Scheme+"://"+u.Host)
	}
}

// Validate returns all mistakes, joined. Each begins with its key.
func (c *Config) Validate() error {
	filled := *c
	filled.SetDefaults()
	return filled.validate()
}

func (c *Config) validate() error {
	var wrong []error
	if _, err := naming.New(c.Queue, c.checkQueue); err != nil {
		wrong = append(wrong, fmt.Errorf("queue: %w", err))
	}
	if c.Group != "" && batches.IsFIFO(c.Queue) {
		wrong = append(wrong, errors.New("group: is for standard queues; in a FIFO queue the ordering key is the group"))
	} else if _, err := naming.New(c.Group, func(string) error { return nil }); err != nil {
		wrong = append(wrong, fmt.Errorf("group: %w", err))
	}
	if c.MaxBytes < 1024 || c.MaxBytes > maxBytes {
		wrong = append(wrong, fmt.Errorf("max_bytes: %d is outside 1024..%d", c.MaxBytes, maxBytes))
	}
	return errors.Join(append(wrong, c.Body.Validate(batches.IsAttribute, batches.MoreAttributes(c.Large)), c.Large.Validate(c.MaxBytes), c.Access.Validate())...)
}

// Channel implements [sinks.Described].
func (c *Config) Channel() sinks.Channel {
	its := sinks.Channel{
		Protocol: "sqs",
		Address:  sinks.Address(nameOf(c.Queue)),
		Text:     "A message for each notification. It may come twice, with the same id.",
	}
	if batches.IsFIFO(c.Queue) {
		its.Text = "A message for each notification. Its group is the ordering key, so that messages of a key are received in order. Its deduplication id is the notification's id: within five minutes a message comes once."
	}
	c.Body.Describe(&its)
	c.Large.Describe(&its)
	return its
}

// nameOf returns the name of a queue that is given by its name, URL or ARN.
func nameOf(queue string) string {
	if isURL(queue) {
		return queue[strings.LastIndexByte(queue, '/')+1:]
	}
	if isARN(queue) {
		return queue[strings.LastIndexByte(queue, ':')+1:]
	}
	return queue
}

func isURL(queue string) bool {
	return strings.HasPrefix(queue, "https://") || strings.HasPrefix(queue, "http://")
}

func isARN(queue string) bool { return strings.HasPrefix(queue, "arn:") }

var (
	legalName    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,75}(\.fifo)?$`)
	regionOfHost = regexp.MustCompile(`^sqs\.([a-z0-9-]+)\.amazonaws\.com`)
	legalARN     = regexp.MustCompile(`^arn:[a-z-]+:sqs:[a-z0-9-]+:(\d{12}):[A-Za-z0-9_.-]+$`)
)

// checkQueue returns why a text names no queue: CreateQueue, QueueName.
func (c *Config) checkQueue(queue string) error {
	name := nameOf(queue)
	switch {
	case queue == "":
		return errors.New("is missing")
	case isARN(queue) && !legalARN.MatchString(queue):
		return fmt.Errorf("%q is not the ARN of a queue, such as arn:aws:sqs:eu-central-1:123456789012:orders", queue)
	case !legalName.MatchString(name) || len(name) > 80:
		return fmt.Errorf("%q is not the name of a queue: up to 80 letters, digits, dashes and underscores, and .fifo at the end of that of a FIFO queue", name)
	case isURL(queue):
		return c.checkURL(queue)
	}
	return c.Access.Check(queue)
}

func (c *Config) checkURL(queue string) error {
	u, err := url.Parse(queue)
	switch {
	case err != nil || u.User != nil || u.RawQuery != "":
		return errors.New("is not the URL of a queue, without a user, such as https://sqs.eu-central-1.amazonaws.com/123456789012/orders")
	case c.Access.Region != "":
		if parts := regionOfHost.FindStringSubmatch(u.Host); parts != nil && parts[1] != c.Access.Region {
			return fmt.Errorf("%s is in the region %s, but region is %s", queue, parts[1], c.Access.Region)
		}
	}
	return nil
}
