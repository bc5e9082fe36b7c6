package kafka

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/waybill-go/waybill/sinks"
)

// Acknowledgements that a record can wait for.
const (
	AcksAll    = "all"    // every replica that is in sync
	AcksLeader = "leader" // the partition's leader only; its loss loses records
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
	// DefaultBatchSize is how many notifications a batch has at most.
	DefaultBatchSize = 500
	// DefaultLinger is how long a record waits for others.
	DefaultLinger = 500 * time.Microsecond
)

// Limits of the configuration.
const (
	minTimeout      = 100 * time.Millisecond
	maxMessageBytes = 100<<20 - 1 // below sarama.MaxRequestSize's default
	maxBatchSize    = 10_000
	maxBatchWait    = time.Minute
)

// maxWaiting is how many records may wait for one partition before they hold up
// those for all others: sarama hands them on one after the other. A silent
// broker is given up partition by partition then, which took 11 seconds instead
// of 3 with 8,000 records under way for 6 partitions. It is 64 KiB of pointers
// for each partition.
const maxWaiting = 8192

// Config is what stands behind "with:" of a kafka sink. Brokers and Topic are required;
// a field that is zero, or nil, means its default.
type Config struct {
	Brokers         []string       `yaml:"brokers" doc:"Addresses of some brokers of the cluster, as host:port; the others are learnt from them. Required."`
	Topic           string         `yaml:"topic" doc:"The topic that gets the records, or a template of it over the notification, such as shop.{{.Type}}, {{.Key}}, {{.Metadata.tenant}}.orders or {{.Metadata.Get \"tenant-id\"}}. What it makes of a notification must be a legal name, or the notification is dead. Required."`
	ClientID        string         `yaml:"client_id" doc:"How the client names itself to the brokers, for their logs and quotas. Default: waybill- and the sink's name."`
	Acks            string         `yaml:"acks" enum:"all,leader" doc:"What must have stored a record before it counts as delivered: all (replicas in sync) or leader. none is not offered: nothing would prove the delivery."`
	Compression     string         `yaml:"compression" enum:"none,gzip,snappy,lz4,zstd" doc:"Compression of record batches: none, gzip, snappy, lz4 or zstd. It trades the forwarder's CPU for network and disk."`
	Idempotent      *bool          `yaml:"idempotent" doc:"Let the brokers drop copies of a record that the client had to send again. Needs acks: all and keeps one request in flight to each broker."`
	Timeout         time.Duration  `yaml:"timeout" doc:"How long one delivery may take, the client's own retries included; those waiting behind it may take as long again. A single answer of a broker may take a tenth of it. At least 100ms."`
	MaxMessageBytes int            `yaml:"max_message_bytes" doc:"Limit of one record, and of a batch of them before compression. Not above the topic's max.message.bytes."`
	Linger          *time.Duration `yaml:"linger" doc:"How long a record waits for others that go in the same request, as Kafka's own linger.ms. At most a tenth of the timeout."`
	Batch           Batch          `yaml:"batch" doc:"How many notifications are written at once."`
	Format          string         `yaml:"format" enum:"json,cloudevents-binary" doc:"What a record looks like: json (the payload as it is, the rest in headers) or cloudevents-binary (the same, with the headers of CloudEvents)."`
	CloudEvents     CloudEvents    `yaml:"cloudevents" doc:"Settings for cloudevents-binary."`
	SASL            SASL           `yaml:"sasl" doc:"How the client authenticates to the brokers."`
	TLS             TLS            `yaml:"tls" doc:"How connections are encrypted, and the brokers verified."`

	// TLSConfig turns TLS on and says all about it, in place of the keys of tls. Where it
	// names no server, brokers must have the name of the host that was connected to. New
	// copies it.
	TLSConfig *tls.Config `yaml:"-"`
	// TokenProvider gives the token for each connection, and for each time that a broker
	// asks again; SASL is OAUTHBEARER then. It is called in parallel and without a
	// context, so it should return within a tenth of the timeout.
	TokenProvider sarama.AccessTokenProvider `yaml:"-"`
}

// Batch is how large batches are.
type Batch struct {
	Size int           `yaml:"size" doc:"The most notifications of a batch, 1 to 10000. With 1 each is written by itself."`
	Wait time.Duration `yaml:"wait" doc:"How long a notification may wait for a batch to fill, up to 1m. Default 0s: a batch takes what is there."`
}

// CloudEvents is what events say of their origin.
type CloudEvents struct {
	Source string `yaml:"source" doc:"URI, absolute or not, of what publishes, such as https://shop.example/orders or /shop; with the id it makes an event unique. Required for cloudevents-binary."`
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
//
// Without a linger the first records of a batch make a request of their own, and the
// rest waits for its answer: with a broker 2 ms away that is half the throughput.
func (c *Config) SetDefaults() {
	c.Format = cmp.Or(c.Format, FormatJSON)
	c.Acks = cmp.Or(c.Acks, AcksAll)
	c.Compression = cmp.Or(c.Compression, sarama.CompressionNone.String())
	c.Idempotent = cmp.Or(c.Idempotent, new(true))
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, DefaultMaxMessageBytes)
	c.Linger = cmp.Or(c.Linger, new(DefaultLinger))
	c.Batch.Size = cmp.Or(c.Batch.Size, DefaultBatchSize)
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
		validateBrokers(c.Brokers),
		validateTopic(c.Topic),
		c.validateAcks(),
		c.validateCompression(),
		c.validateLimits(),
		c.validateFormat(),
		c.SASL.with(c.TokenProvider).validate(c.TokenProvider),
		c.validateTLS(),
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

// codecs are the compressions by the names that users type.
var codecs = map[string]sarama.CompressionCodec{
	sarama.CompressionNone.String():   sarama.CompressionNone,
	sarama.CompressionGZIP.String():   sarama.CompressionGZIP,
	sarama.CompressionSnappy.String(): sarama.CompressionSnappy,
	sarama.CompressionLZ4.String():    sarama.CompressionLZ4,
	sarama.CompressionZSTD.String():   sarama.CompressionZSTD,
}

func (c *Config) validateCompression() error {
	if _, known := codecs[c.Compression]; !known {
		return fmt.Errorf("compression: %q is unknown; use one of %s", c.Compression, strings.Join(slices.Sorted(maps.Keys(codecs)), ", "))
	}
	return nil
}

func (c *Config) validateLimits() error {
	var problems []error
	if c.Timeout < minTimeout {
		problems = append(problems, fmt.Errorf("timeout: %s is too short, the least is %s", c.Timeout, minTimeout))
	}
	if c.MaxMessageBytes < 1 || c.MaxMessageBytes > maxMessageBytes {
		problems = append(problems, fmt.Errorf("max_message_bytes: %d is outside 1..%d", c.MaxMessageBytes, maxMessageBytes))
	}
	if *c.Linger < 0 || *c.Linger > c.Timeout/10 {
		problems = append(problems, fmt.Errorf("linger: %s is outside 0s..%s, a tenth of the timeout", *c.Linger, c.Timeout/10))
	}
	if c.Batch.Size < 1 || c.Batch.Size > maxBatchSize {
		problems = append(problems, fmt.Errorf("batch.size: %d is outside 1..%d", c.Batch.Size, maxBatchSize))
	}
	if c.Batch.Wait < 0 || c.Batch.Wait > maxBatchWait {
		problems = append(problems, fmt.Errorf("batch.wait: %s is outside 0s..%s", c.Batch.Wait, maxBatchWait))
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

func (c *Config) validateTLS() error {
	_, err := c.TLS.encryption(c.TLSConfig, slog.New(slog.DiscardHandler))
	return err
}

// notInURI follows RFC 3986, section 2.
func notInURI(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"<>\\^`{|}", r) }

// saramaConfig is the client's configuration for the sink of that name.
//
// sarama has no limit for a delivery as a whole. The worst way that one can go
// is a broker that takes connections and never answers. Then a request ends
// after 5 steps: its own answer, three on a new connection (the versions, again
// in an older form, the metadata), and one at another broker. Those that wait
// behind it, for whatever partition, end after 18 at most, when three times
// no broker named a leader and sarama's breaker opens. So a step is a tenth of the
// timeout.
func (c *Config) saramaConfig(name string) *sarama.Config {
	conf := sarama.NewConfig()
	conf.ClientID = c.ClientID
	if conf.ClientID == "" {
		conf.ClientID = "waybill-" + name
	}

	step := c.Timeout / 10
	conf.Net.DialTimeout, conf.Net.ReadTimeout, conf.Net.WriteTimeout = step, step, step
	conf.Metadata.Timeout = step
	conf.Metadata.Retry.Backoff = min(conf.Metadata.Retry.Backoff, step/4)
	conf.Producer.Timeout = step * 4 / 5 // the broker's answer that it gave up arrives before we do
	conf.Producer.Retry.Max = retries
	conf.Producer.Transaction.Retry.Max = 3 // of getting a producer id; 50 would take 5 seconds

	// Only our topics' metadata: a large cluster's is megabytes with each refresh.
	conf.Metadata.Full = false

	conf.ChannelBufferSize = maxWaiting
	conf.Producer.Return.Successes = true
	conf.Producer.Flush.Frequency = *c.Linger
	conf.Producer.Partitioner = sarama.NewMurmur2Partitioner
	conf.Producer.Compression = codecs[c.Compression]
	conf.Producer.MaxMessageBytes = c.MaxMessageBytes
	conf.Producer.RequiredAcks = sarama.WaitForAll
	if c.Acks == AcksLeader {
		conf.Producer.RequiredAcks = sarama.WaitForLocal
	}
	if *c.Idempotent {
		conf.Producer.Idempotent = true
		conf.Net.MaxOpenRequests = 1 // sarama insists
	}
	c.SASL.with(c.TokenProvider).apply(conf, c.TokenProvider)
	return conf
}

// askingConfig is the configuration of clients that only ask. Their pauses are
// short, so that the time is for the tries: who runs out of it between two is
// told nothing of what is wrong. The producer's pauses bridge an election. The client
// itself does not ask again, since all that others ask meanwhile would wait for it:
// askForTopic does.
func askingConfig(conf *sarama.Config) *sarama.Config {
	asking := *conf
	asking.Metadata.RefreshFrequency = 0 // what is known is not asked again
	asking.Metadata.Retry.Max = 0
	asking.Metadata.Retry.Backoff = conf.Metadata.Timeout / 20
	return &asking
}
