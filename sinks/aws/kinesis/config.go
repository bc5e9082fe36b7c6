package kinesis

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/aws/access"
	"github.com/waybill-go/waybill/sinks/body"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/internal/naming"
	"github.com/waybill-go/waybill/sinks/large"
)

// Limits of Kinesis: https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecords.html
const (
	maxEntries      = 500
	maxRequestBytes = 5 << 20
	maxRecordBytes  = 10 << 20 // with the partition key, if the stream permits it
	maxPartitionKey = 256      // characters
)

// Config has the settings of a kinesis sink, which are below "with" in the configuration.
type Config struct {
	Stream   string          `yaml:"stream" doc:"Name or ARN of the stream, or a template for one, such as {{.Metadata.tenant}}-orders. Required"`
	MaxBytes int             `yaml:"max_bytes" doc:"Largest record in bytes, with its partition key, up to 10485760; not above the stream's MaxRecordSizeInKiB. Default: 1048576"`
	Body     body.Form       `yaml:",inline"`
	Encoding encoding.Config `yaml:"encoding" doc:"Payloads in Avro, JSON Schema or Protobuf, with the id of their schema in a schema registry, for format: payload. TOPIC in the names of schemas is the name of the stream"`
	Large    large.Config    `yaml:"large" doc:"Store of bodies that are too large for a record, in the form of Amazon's extended client libraries"`
	Access   access.Config   `yaml:",inline"`
}

var (
	_ sinks.Builder   = Config{}
	_ sinks.Defaulter = (*Config)(nil)
	_ sinks.Validator = (*Config)(nil)
	_ sinks.Described = (*Config)(nil)
)

// Build makes a sink of the configuration; see [New].
func (c Config) Build(in sinks.Instance) (sinks.Sink, error) { return New(in, c) }

// SetDefaults fills the fields that are zero: MaxBytes 1 MiB, Format envelope, Timeout 10 s, and those of Encoding.
func (c *Config) SetDefaults() {
	c.MaxBytes = cmp.Or(c.MaxBytes, 1<<20)
	c.Body.Format = cmp.Or(c.Body.Format, body.FormatEnvelope)
	c.Encoding.SetDefaults()
	c.Access.SetDefaults()
	c.Access.In(c.Stream)
}

// Validate returns all mistakes, joined. Each begins with its key.
func (c *Config) Validate() error {
	filled := *c
	filled.SetDefaults()
	return filled.validate()
}

func (c *Config) validate() error {
	var wrong []error
	if _, err := naming.New(c.Stream, c.checkStream); err != nil {
		wrong = append(wrong, fmt.Errorf("stream: %w", err))
	}
	if c.MaxBytes < 1024 || c.MaxBytes > maxRecordBytes {
		wrong = append(wrong, fmt.Errorf("max_bytes: %d is outside 1024..%d", c.MaxBytes, maxRecordBytes))
	}
	if c.Encoding.Enabled() && c.Body.Format != body.FormatPayload {
		wrong = append(wrong, fmt.Errorf("encoding: is for format: %s, but format is %s", body.FormatPayload, c.Body.Format))
	}
	return errors.Join(append(wrong, c.Body.Validate(), c.Encoding.Validate(), c.Large.Validate(c.MaxBytes), c.Access.Validate())...)
}

// Channel implements [sinks.Described].
func (c *Config) Channel() sinks.Channel {
	its := sinks.Channel{
		Protocol: "kinesis",
		Address:  sinks.Address(streamName(c.Stream)),
		Text:     "A record for each notification. Its partition key is the ordering key, so that records of a key are in one shard, in order. A record may come twice.",
	}
	if c.Body.Format == body.FormatPayload {
		its.Text += " It has only the payload, and lacks the id of the notification."
	}
	if c.Large.Enabled() {
		its.Text += " The data of one that is too large is a pointer, which says where it is stored."
	}
	c.Body.Describe(&its)
	c.Encoding.Describe(&its)
	return its
}

var (
	legalName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,128}$`)
	legalARN  = regexp.MustCompile(`^arn:[a-z-]+:kinesis:[a-z0-9-]+:\d{12}:stream/([a-zA-Z0-9_.-]{1,128})$`)
)

// streamName returns the name of a stream that is given by its name or ARN.
func streamName(stream string) string {
	if parts := legalARN.FindStringSubmatch(stream); parts != nil {
		return parts[1]
	}
	return stream
}

// checkStream returns why a text names no stream: CreateStream, StreamName.
func (c *Config) checkStream(stream string) error {
	switch {
	case stream == "":
		return errors.New("is missing")
	case !legalName.MatchString(stream) && !legalARN.MatchString(stream):
		return fmt.Errorf("%q is neither the name of a stream, which has up to 128 letters, digits, dots, dashes and underscores, nor its ARN, such as arn:aws:kinesis:eu-central-1:123456789012:stream/orders", stream)
	}
	return c.Access.Check(stream)
}
