package kafka

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/encoding"
	"github.com/waybill-go/waybill/sinks/internal/cloudevents"
	"github.com/waybill-go/waybill/sinks/kafka/connection"
	"github.com/waybill-go/waybill/sinks/large"
)

// Values of Config.Acks.
const (
	AcksAll    = "all"    // every replica in sync has stored the record
	AcksLeader = "leader" // the partition's leader has; if the broker is lost, so are records
)

// Values of Config.Client.
const (
	ClientFranz     = "franz-go"  // writes many records of a key at once
	ClientWatermill = "watermill" // Watermill's publisher, of sinks/kafka/watermill; writes one record of a key at a time
)

// Values of Config.Format.
const (
	FormatJSON   = "json"               // the payload as the value, the rest in headers
	FormatBinary = "cloudevents-binary" // the payload as the value, the rest in CloudEvents headers
)

// Values of Config.Collection.
const (
	CollectionRecords = "records" // a record for each member, all in one call
	CollectionArray   = "array"   // one record with a JSON array of all members
)

const (
	// DefaultTimeout is the default of Config.Timeout.
	DefaultTimeout = 10 * time.Second
	// DefaultMaxMessageBytes is the default of Config.MaxMessageBytes.
	DefaultMaxMessageBytes = 1 << 20
)

// Limits of the configuration.
const (
	minTimeout      = time.Second
	maxTimeout      = time.Hour
	minBatchBytes   = 512            // franz-go accepts no less
	maxMessageBytes = 100<<20 - 1024 // less than clients and brokers accept as one request
)

// Config has the settings of a sink, which are below "with" in the configuration. Brokers
// and Topic are required; any other zero field means its default.
type Config struct {
	Brokers         []string        `yaml:"brokers" doc:"Addresses of some brokers of the cluster, as host:port. The client discovers the others. Required"`
	Topic           string          `yaml:"topic" doc:"Topic of the records, or a template for it, such as shop.{{.Type}}, {{.Key}}, {{.Metadata.tenant}}.orders or {{.Metadata.Get \"tenant-id\"}}. A notification for which it does not produce a legal name is dead. Required"`
	Client          string          `yaml:"client" enum:"franz-go,watermill" doc:"Client library that writes the records: franz-go, or watermill for Watermill's publisher, which is slower"`
	Acks            string          `yaml:"acks" enum:"all,leader" doc:"Which replicas must have stored a record before it counts as delivered: all (that are in sync) or leader. With all, the brokers drop duplicates of records that the client had to send again; with leader, each broker gets one request at a time instead of five. There is no value none, because nothing would prove the delivery"`
	Compression     string          `yaml:"compression" enum:"none,gzip,snappy,lz4,zstd" doc:"Compression of record batches: none, gzip, snappy, lz4 or zstd. It costs CPU in the forwarder, and saves network and disk"`
	ExactlyOnce     bool            `yaml:"exactly_once" doc:"Write each notification exactly once, for consumers with isolation.level: read_committed. The sink writes in transactions, and records what it has written in the topic of positions. Needs Apache Kafka 4.0 or later with transaction.version 2. docs/guarantees.md has the limits"`
	Positions       string          `yaml:"positions" doc:"Compacted topic in which exactly_once records what was written, with a partition for each lane. It is created if the brokers permit it. Outboxes with sinks of the same name need different topics. Default: waybill-positions- and the sink's name"`
	Timeout         time.Duration   `yaml:"timeout" doc:"How long one delivery may take, including the client's retries, 1s to 1h. A single answer of a broker may take a fifth of it"`
	MaxMessageBytes int             `yaml:"max_message_bytes" doc:"Largest record, and largest batch of records before compression, in bytes; not above the topic's max.message.bytes"`
	Format          string          `yaml:"format" enum:"json,cloudevents-binary" doc:"Format of records: json (the payload as the value, and the rest in headers) or cloudevents-binary (the same, with the headers of CloudEvents)"`
	Source          string          `yaml:"source" doc:"URI of the publisher in cloudevents-binary, absolute or relative, such as https://shop.example/orders or /shop. Source and id together make an event unique. Required for cloudevents-binary"`
	Collection      string          `yaml:"collection" enum:"records,array" doc:"How the notifications that collect puts together are written: records (a record for each, all in one call) or array (one record, whose key is the group and whose value is a JSON array of whole notifications), which needs format: json"`
	Encoding        encoding.Config `yaml:"encoding" doc:"Payloads in Avro, JSON Schema or Protobuf, with the id of their schema in a schema registry"`
	Tombstones      []string        `yaml:"tombstones" doc:"Types whose records have null as their value instead of the payload, so that a compacted topic deletes their key, such as customer.erased, or customer.* for all that begin with customer. A notification of them without a key is dead. Default: none"`
	Large           large.Config    `yaml:"large" doc:"Store for values that are too large for a record, which then has a pointer to the value"`
	SASL            connection.SASL `yaml:"sasl"`
	TLS             connection.TLS  `yaml:"tls"`

	// TLSConfig turns TLS on, and replaces the keys of tls. Without a ServerName, a broker's
	// certificate must have the host of the connection. New copies it.
	TLSConfig *tls.Config `yaml:"-"`
	// TokenProvider provides tokens for the SASL mechanism OAUTHBEARER, which it turns on.
	TokenProvider connection.TokenProvider `yaml:"-"`
	// Library writes the records instead of franz-go.
	Library Library `yaml:"-"`

	grace time.Duration // tests change it; 0 means grace
}

var (
	_ sinks.Builder   = Config{}
	_ sinks.Defaulter = (*Config)(nil)
	_ sinks.Validator = (*Config)(nil)
)

// Build makes a sink of the configuration; see [New].
func (c Config) Build(in sinks.Instance) (sinks.Sink, error) { return New(in, c) }

// SetDefaults fills the fields that are zero: Client franz-go or the name of Library, Acks all,
// Compression none, Timeout 10 s, MaxMessageBytes 1 MiB, Format json, Collection records, and those
// of Encoding.
//
// Compression is off by default. Every consumer can read uncompressed records, and when the
// forwarder's CPU was the limit, compression cost a quarter (lz4, zstd) to a half (snappy,
// gzip) of the throughput. It is useful when the network is the limit. With a topic's
// compression.type, the broker compresses.
func (c *Config) SetDefaults() {
	c.Format = cmp.Or(c.Format, FormatJSON)
	c.Collection = cmp.Or(c.Collection, CollectionRecords)
	if c.Client == "" && c.Library != nil {
		c.Client = c.Library.Name()
	}
	c.Client = cmp.Or(c.Client, ClientFranz)
	c.Acks = cmp.Or(c.Acks, AcksAll)
	c.Compression = cmp.Or(c.Compression, "none")
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, DefaultMaxMessageBytes)
	c.Encoding.SetDefaults()
}

// Validate returns all mistakes, joined, each with the name of its key.
func (c *Config) Validate() error {
	filled := *c
	filled.SetDefaults()
	return filled.validate()
}

// validate validates a configuration whose defaults are set.
func (c *Config) validate() error {
	return errors.Join(
		new(c.connection()).Validate(),
		validateTopic(c.Topic),
		c.validateClient(),
		c.validateAcks(),
		c.validateCompression(),
		c.validateLimits(),
		c.validateFormat(),
		c.validateCollection(),
		c.validateTombstones(),
		c.Large.Validate(c.MaxMessageBytes),
		c.Encoding.Validate(),
		c.validateExactlyOnce(),
	)
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
	case c.Library != nil && c.Client != c.Library.Name():
		return fmt.Errorf("client: is %s, but the program gave the library %s", c.Client, c.Library.Name())
	}
	return nil
}

func (c *Config) validateAcks() error {
	switch {
	case c.Acks == "none":
		return errors.New("acks: none would lose records silently; use all or leader")
	case c.Acks != AcksAll && c.Acks != AcksLeader:
		return fmt.Errorf("acks: %q is unknown; use all or leader", c.Acks)
	}
	return nil
}

// idempotent reports whether the brokers drop duplicates of records that the client had to send
// again. They do not for a record that only the leader must have stored.
func (c *Config) idempotent() bool { return c.Acks == AcksAll }

// codecs has the compressions by their names in the configuration.
var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
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
	switch {
	case c.Format == FormatJSON && c.Source != "":
		return fmt.Errorf("source: is for format %s, but format is %s", FormatBinary, c.Format)
	case c.Format == FormatJSON:
		return nil
	case c.Format != FormatBinary:
		return fmt.Errorf("format: %q is not offered; use %s or %s", c.Format, FormatJSON, FormatBinary)
	}
	if err := cloudevents.CheckSource(c.Source); err != nil {
		return fmt.Errorf("source: %w", err)
	}
	return nil
}

func (c *Config) validateCollection() error {
	switch {
	case c.Collection != CollectionRecords && c.Collection != CollectionArray:
		return fmt.Errorf("collection: %q is not offered; use %s or %s", c.Collection, CollectionRecords, CollectionArray)
	case c.Collection == CollectionArray && c.Format != FormatJSON:
		return fmt.Errorf("collection: %s needs format: %s, because CloudEvents has no batches in Kafka", CollectionArray, FormatJSON)
	case c.Collection == CollectionArray && c.Encoding.Enabled():
		return fmt.Errorf("collection: %s is one array of notifications, which has no schema; with encoding use %s", CollectionArray, CollectionRecords)
	}
	return nil
}

func (c *Config) validateTombstones() error {
	var mistakes []error
	if len(c.Tombstones) > 0 && c.Collection == CollectionArray {
		mistakes = append(mistakes, fmt.Errorf("tombstones: a record with an array of notifications deletes no key; use collection: %s", CollectionRecords))
	}
	for _, pattern := range c.Tombstones {
		if err := notification.ValidateType(strings.TrimSuffix(pattern, ".*")); err != nil {
			mistakes = append(mistakes, fmt.Errorf("tombstones: %q: write a type or the beginning of types followed by .*, which is allowed only at the end: %w", pattern, err))
		}
	}
	return errors.Join(mistakes...)
}

// isTombstone reports whether records of a type have the value null.
func (c *Config) isTombstone(typ string) bool {
	return slices.ContainsFunc(c.Tombstones, func(pattern string) bool {
		prefix, several := strings.CutSuffix(pattern, "*")
		return typ == pattern || several && strings.HasPrefix(typ, prefix)
	})
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
	if c.Acks != AcksAll {
		problem("exactly_once: needs acks: all")
	}
	if c.Positions == c.Topic {
		problem("positions: is the topic of the records; use a separate topic")
	}
	return errors.Join(problems...)
}

// setPositions sets the default of Positions for the named sink.
func (c *Config) setPositions(sink string) error {
	if !c.ExactlyOnce || c.Positions != "" {
		return nil
	}
	c.Positions = positionsPrefix + sink
	if err := checkTopicName(c.Positions); err != nil {
		return fmt.Errorf("positions: is required, because its default is not a legal topic: %w", err)
	}
	return nil
}

// connection returns the settings with which the sink connects to the brokers.
func (c *Config) connection() connection.Config {
	return connection.Config{
		Brokers: c.Brokers, Step: c.step(), SASL: c.SASL, TLS: c.TLS, TLSConfig: c.TLSConfig, TokenProvider: c.TokenProvider,
	}
}

// step returns how long one exchange with a broker, such as connecting, may take.
func (c *Config) step() time.Duration { return c.Timeout / 10 }
