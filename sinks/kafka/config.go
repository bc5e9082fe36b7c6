package kafka

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/sinks"
)

// Acknowledgements that a record can wait for.
const (
	AcksAll    = "all"    // every replica that is in sync
	AcksLeader = "leader" // the partition's leader only; its loss loses records
)

// Clients that write records.
const (
	ClientFranz     = "franz-go"  // many records of a key at once
	ClientWatermill = "watermill" // Watermill's publisher, one record of a key after the other
)

// Formats of a record.
const (
	FormatJSON   = "json"               // the payload as it is, the rest in headers
	FormatBinary = "cloudevents-binary" // the payload as it is, the rest in headers of CloudEvents
)

const (
	// DefaultTimeout bounds one delivery.
	DefaultTimeout = 10 * time.Second
	// DefaultMaxMessageBytes is the limit of one record.
	DefaultMaxMessageBytes = 1 << 20
)

// Limits of the configuration.
const (
	minTimeout      = time.Second
	maxTimeout      = time.Hour
	leastBatchBytes = 512            // of franz-go
	maxMessageBytes = 100<<20 - 1024 // below what clients and brokers take as one request
)

// Config is what stands behind "with:" of a kafka sink. Brokers and Topic are required;
// a field that is zero, or nil, means its default.
type Config struct {
	Brokers         []string      `yaml:"brokers" doc:"Addresses of some brokers of the cluster, as host:port. The client discovers the others. Required"`
	Topic           string        `yaml:"topic" doc:"Topic of the records, or a template for it, such as shop.{{.Type}}, {{.Key}}, {{.Metadata.tenant}}.orders or {{.Metadata.Get \"tenant-id\"}}. A notification for which it does not produce a legal name is dead. Required"`
	Client          string        `yaml:"client" enum:"franz-go,watermill" doc:"Client library that writes the records: franz-go, or watermill for Watermill's publisher, which is slower"`
	ClientID        string        `yaml:"client_id" doc:"Name of the client in the brokers' logs and quotas. Default: waybill- and the sink's name"`
	Acks            string        `yaml:"acks" enum:"all,leader" doc:"Which replicas must have stored a record before it counts as delivered: all (that are in sync) or leader. There is no value none, because nothing would prove the delivery"`
	Compression     string        `yaml:"compression" enum:"none,gzip,snappy,lz4,zstd" doc:"Compression of record batches: none, gzip, snappy, lz4 or zstd. It costs CPU in the forwarder, and saves network and disk"`
	Idempotent      *bool         `yaml:"idempotent" doc:"Let the brokers drop duplicates of records that the client had to send again. Needs acks: all. If it is false, each broker gets one request at a time instead of five"`
	ExactlyOnce     bool          `yaml:"exactly_once" doc:"Write each notification exactly once, for consumers with isolation.level: read_committed. The sink writes in transactions, and records what it has written in the topic of positions. Needs Apache Kafka 4.0 or later with transaction.version 2. docs/guarantees.md has the limits"`
	Positions       string        `yaml:"positions" doc:"Compacted topic in which exactly_once records what was written, with a partition for each lane. It is created if the brokers permit it. Outboxes with sinks of the same name need different topics. Default: waybill-positions- and the sink's name"`
	Timeout         time.Duration `yaml:"timeout" doc:"How long one delivery may take, including the client's retries, 1s to 1h. A single answer of a broker may take a fifth of it"`
	MaxMessageBytes int           `yaml:"max_message_bytes" doc:"Largest record, and largest batch of records before compression, in bytes; not above the topic's max.message.bytes"`
	Format          string        `yaml:"format" enum:"json,cloudevents-binary" doc:"Format of records: json (the payload as the value, and the rest in headers) or cloudevents-binary (the same, with the headers of CloudEvents)"`
	CloudEvents     CloudEvents   `yaml:"cloudevents" doc:"Settings of cloudevents-binary"`
	SASL            SASL          `yaml:"sasl" doc:"Settings of the authentication to the brokers"`
	TLS             TLS           `yaml:"tls" doc:"Settings of TLS to the brokers"`

	// TLSConfig turns TLS on and says all about it, in place of the keys of tls. Where it
	// names no server, brokers must have the name of the host that was connected to. New
	// copies it.
	TLSConfig *tls.Config `yaml:"-"`
	// TokenProvider gives tokens; SASL is OAUTHBEARER then.
	TokenProvider TokenProvider `yaml:"-"`

	// Marshaler makes the records of [ClientWatermill], of messages with the
	// notification's id, its payload and the headers as metadata. nil makes the same
	// record as [ClientFranz]. Marshalers of its own should set the record's key.
	Marshaler wmkafka.Marshaler `yaml:"-"`
	// Decorators stand around the publisher of [ClientWatermill], the first one inside.
	Decorators []message.PublisherDecorator `yaml:"-"`
}

// CloudEvents is what events say of their origin.
type CloudEvents struct {
	Source string `yaml:"source" doc:"URI of the publisher, absolute or relative, such as https://shop.example/orders or /shop. Source and id together make an event unique. Required for cloudevents-binary"`
}

var (
	_ sinks.Defaulter = (*Config)(nil)
	_ sinks.Validator = (*Config)(nil)
)

// SetDefaults fills the fields that are zero.
//
// Nothing is compressed by default: every consumer reads that, and compressing
// took a quarter (lz4, zstd) to a half (snappy, gzip) of the throughput where the
// forwarder's CPU was the limit. Where the network is, it pays; and a topic's
// compression.type can have the broker do it.
func (c *Config) SetDefaults() {
	c.Format = cmp.Or(c.Format, FormatJSON)
	c.Client = cmp.Or(c.Client, ClientFranz)
	c.Acks = cmp.Or(c.Acks, AcksAll)
	c.Compression = cmp.Or(c.Compression, "none")
	c.Idempotent = cmp.Or(c.Idempotent, new(true))
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, DefaultMaxMessageBytes)
}

// Validate reports everything that is wrong, each under the name of its field.
func (c *Config) Validate() error {
	filled := *c
	filled.SetDefaults()
	return filled.validate()
}

// validate is Validate of a configuration whose defaults are set.
func (c *Config) validate() error {
	return errors.Join(
		new(c.connection()).Validate(),
		validateTopic(c.Topic),
		c.validateClient(),
		c.validateAcks(),
		c.validateCompression(),
		c.validateLimits(),
		c.validateFormat(),
		c.validateExactlyOnce(),
	)
}

func validateBrokers(brokers []string) error {
	if len(brokers) == 0 {
		return errors.New("brokers: at least one address is needed, such as localhost:9092")
	}
	var problems []error
	for _, broker := range brokers {
		host, port, err := net.SplitHostPort(broker)
		number, numberErr := strconv.Atoi(port)
		if err != nil || host == "" || numberErr != nil || number < 1 || number > 65535 {
			problems = append(problems, fmt.Errorf("brokers: %q is not host:port", broker))
		}
	}
	return errors.Join(problems...)
}

func validateTopic(text string) error {
	if _, err := newTopic(text); err != nil {
		return fmt.Errorf("topic: %w", err)
	}
	return nil
}

func (c *Config) validateClient() error {
	switch {
	case c.Client != ClientFranz && c.Client != ClientWatermill:
		return fmt.Errorf("client: %q is not offered; use %s or %s", c.Client, ClientFranz, ClientWatermill)
	case c.Client == ClientFranz && (c.Marshaler != nil || len(c.Decorators) > 0):
		return fmt.Errorf("client: marshalers and decorators are of %s", ClientWatermill)
	}
	return nil
}

func (c *Config) validateAcks() error {
	switch {
	case c.Acks == "none":
		return errors.New("acks: none would lose records without a word; use all or leader")
	case c.Acks != AcksAll && c.Acks != AcksLeader:
		return fmt.Errorf("acks: %q is unknown; use all or leader", c.Acks)
	case c.Acks == AcksLeader && *c.Idempotent:
		return errors.New("idempotent: needs acks: all; set idempotent: false to wait for the leader only")
	}
	return nil
}

// codec is a compression in the words of the clients.
type codec struct {
	franz  kgo.CompressionCodec
	sarama sarama.CompressionCodec
}

// codecs are the compressions by the names that users type.
var codecs = map[string]codec{
	"none":   {kgo.NoCompression(), sarama.CompressionNone},
	"gzip":   {kgo.GzipCompression(), sarama.CompressionGZIP},
	"snappy": {kgo.SnappyCompression(), sarama.CompressionSnappy},
	"lz4":    {kgo.Lz4Compression(), sarama.CompressionLZ4},
	"zstd":   {kgo.ZstdCompression(), sarama.CompressionZSTD},
}

func (c *Config) validateCompression() error {
	if _, known := codecs[c.Compression]; !known {
		return fmt.Errorf("compression: %q is unknown; use one of %s", c.Compression, strings.Join(slices.Sorted(maps.Keys(codecs)), ", "))
	}
	return nil
}

func (c *Config) validateLimits() error {
	var problems []error
	if c.Timeout < minTimeout || c.Timeout > maxTimeout {
		problems = append(problems, fmt.Errorf("timeout: %s is outside %s..%s", c.Timeout, minTimeout, maxTimeout))
	}
	if c.MaxMessageBytes < 1 || c.MaxMessageBytes > maxMessageBytes {
		problems = append(problems, fmt.Errorf("max_message_bytes: %d is outside 1..%d", c.MaxMessageBytes, maxMessageBytes))
	}
	return errors.Join(problems...)
}

func (c *Config) validateFormat() error {
	text := c.CloudEvents.Source
	source, err := url.Parse(text)
	switch {
	case c.Format == FormatJSON && text != "":
		return fmt.Errorf("cloudevents.source: is for format %s, and format is %s", FormatBinary, c.Format)
	case c.Format == FormatJSON:
		return nil
	case c.Format != FormatBinary:
		return fmt.Errorf("format: %q is not offered; use %s or %s", c.Format, FormatJSON, FormatBinary)
	case text == "":
		return errors.New("cloudevents.source: is missing, and no event is valid without it; name what publishes, such as /shop")
	case err != nil || strings.ContainsFunc(text, notInURI):
		return fmt.Errorf("cloudevents.source: %q is not a URI; write one such as https://shop.example/orders or /shop", text)
	case source.User != nil:
		return errors.New("cloudevents.source: has a user in it, which every consumer would see")
	}
	return nil
}

func (c *Config) validateExactlyOnce() error {
	var problems []error
	problem := func(text string) { problems = append(problems, errors.New(text)) }
	switch {
	case !c.ExactlyOnce && c.Positions != "":
		problem("positions: is for exactly_once, which is off")
	case c.Positions != "":
		if err := checkTopicName(c.Positions); err != nil {
			problem("positions: " + err.Error())
		}
	}
	if !c.ExactlyOnce {
		return errors.Join(problems...)
	}
	if c.Client != ClientFranz {
		problem("exactly_once: needs client: " + ClientFranz)
	}
	if c.Acks != AcksAll || !*c.Idempotent {
		problem("exactly_once: needs acks: all and idempotent: true")
	}
	if c.Positions == c.Topic {
		problem("positions: is the topic of the records; it is one of its own")
	}
	return errors.Join(problems...)
}

// setPositions sets the default of positions, for a sink of that name.
func (c *Config) setPositions(sink string) error {
	if !c.ExactlyOnce || c.Positions != "" {
		return nil
	}
	c.Positions = positionsPrefix + sink
	if err := checkTopicName(c.Positions); err != nil {
		return fmt.Errorf("positions: is to be set, since the sink's name makes no topic: %w", err)
	}
	return nil
}

// connection is how the sink reaches the brokers.
func (c *Config) connection() Connection {
	return Connection{
		Brokers: c.Brokers, ClientID: c.ClientID, Step: c.step(), SASL: c.SASL, TLS: c.TLS,
		TLSConfig: c.TLSConfig, TokenProvider: c.TokenProvider,
	}
}

// notInURI follows RFC 3986, section 2.
func notInURI(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"<>\\^`{|}", r) }

// step is how long one exchange with a broker may take, such as connecting.
func (c *Config) step() time.Duration { return c.Timeout / 10 }
