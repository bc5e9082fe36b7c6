// Package watermill writes the records of the kafka sink with Watermill's Kafka publisher, through its
// Publish, for programs that have marshalers or decorators of Watermill. It is many times slower than
// franz-go:
//
//	events, err := kafka.New(sinks.Instance{Name: "events"}, kafka.Config{
//		Brokers: brokers, Topic: "orders", Library: watermill.Library{Marshaler: mine},
//	})
package watermill

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/kafka"
	"github.com/waybill-go/waybill/sinks/kafka/connection"
)

// metadataMaxAge is the age at which the topics' state is requested again.
const metadataMaxAge = 10 * time.Second

// minBatchBytes is the least limit of a request, as with franz-go.
const minBatchBytes = 512

// Library is the client watermill of a kafka sink.
type Library struct {
	// Marshaler makes the records from messages that have the notification's id, its payload, and
	// the headers as metadata. With nil the records are the same as those of franz-go. A custom
	// marshaler should set the record's key.
	Marshaler wmkafka.Marshaler
	// Decorators wrap the publisher. The first one is the innermost.
	Decorators []message.PublisherDecorator
}

var _ kafka.Library = Library{}

// Name implements [kafka.Library].
func (Library) Name() string { return kafka.ClientWatermill }

// Open makes the publisher.
func (l Library) Open(life context.Context, c kafka.Config, to *connection.Opened) (kafka.Writer, error) {
	config := saramaConfig(c, to)
	config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, dialer{life, to.Connect}
	pause := func(try, _ int) time.Duration {
		if life.Err() != nil {
			return 0
		}
		return connection.Backoff(try)
	}
	config.Producer.Retry.BackoffFunc, config.Metadata.Retry.BackoffFunc = pause, pause
	var publisher message.Publisher
	publisher, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{
		Brokers: to.Brokers, Marshaler: marshaler{l.Marshaler}, OverwriteSaramaConfig: config,
	}, nil)
	for _, decorate := range l.Decorators {
		if err == nil {
			publisher, err = decorate(publisher)
		}
	}
	return writer{publisher}, kafkaError(err)
}

var compressions = map[string]sarama.CompressionCodec{
	"none":   sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

// saramaConfig returns the configuration of sarama, which has no limit for a delivery as a
// whole. If a broker accepts connections but never answers, a request ends after five steps:
// one for its answer, three on a new connection, and one at another broker.
func saramaConfig(c kafka.Config, to *connection.Opened) *sarama.Config {
	conf := sarama.NewConfig()
	conf.ClientID = to.ClientID
	step := to.Step
	conf.Net.DialTimeout, conf.Net.ReadTimeout, conf.Net.WriteTimeout = step, step, step
	conf.Metadata.Timeout, conf.Metadata.RefreshFrequency = step, metadataMaxAge
	conf.Metadata.Full = false // only the topics in use: all topics of a large cluster are megabytes
	conf.Producer.Timeout = step * 4 / 5
	conf.Producer.Retry.Max = connection.Retries
	conf.Producer.Transaction.Retry.Max = 3 // for a producer id; the default of 50 would take 5 seconds
	conf.Producer.Return.Successes = true
	conf.Producer.Partitioner = sarama.NewMurmur2Partitioner
	conf.Producer.Compression = compressions[c.Compression]
	conf.Producer.MaxMessageBytes = max(c.MaxMessageBytes, minBatchBytes)
	conf.Producer.RequiredAcks = sarama.WaitForLocal
	if c.Acks == kafka.AcksAll {
		conf.Producer.RequiredAcks, conf.Producer.Idempotent = sarama.WaitForAll, true
		conf.Net.MaxOpenRequests = 1 // sarama requires it
	}
	sasl := to.SASL
	if sasl == (connection.SASL{}) {
		return conf
	}
	conf.Net.SASL.Enable, conf.Net.SASL.Mechanism = true, sarama.SASLMechanism(strings.ToUpper(sasl.Mechanism))
	conf.Net.SASL.User, conf.Net.SASL.Password = sasl.User, sasl.Password
	if to.HasTokens() {
		conf.Net.SASL.TokenProvider = tokens{to}
	}
	if sasl.SCRAM() != nil {
		conf.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return sasl.SCRAM() }
	}
	return conf
}

// tokens provides tokens to sarama.
type tokens struct{ of *connection.Opened }

func (t tokens) Token() (*sarama.AccessToken, error) {
	ctx, cancel := context.WithTimeout(context.Background(), t.of.Step)
	defer cancel()
	token, err := t.of.Token(ctx)
	return &sarama.AccessToken{Token: token.Text, Extensions: token.Extensions}, err
}

// kafkaError wraps an error of sarama together with the same error of franz-go.
func kafkaError(err error) error {
	var (
		protocol sarama.KError
		refusal  sarama.ConfigurationError
		encoding sarama.PacketEncodingError
	)
	switch {
	case errors.As(err, &refusal), errors.As(err, &encoding):
		return fmt.Errorf("%w: %w", kafka.ErrTooLarge, err) // the configuration itself was accepted
	case errors.As(err, &protocol):
		return fmt.Errorf("%w: %w", kerr.ErrorForCode(int16(protocol)), err)
	}
	return err
}

// dialer makes the connections of sarama, whose interface has no context. All connections end
// with life, and none is made after that.
type dialer struct {
	life    context.Context
	connect func(ctx context.Context, network, address string) (net.Conn, error)
}

func (d dialer) Dial(protocol, address string) (net.Conn, error) {
	if d.life.Err() != nil {
		return nil, context.Cause(d.life)
	}
	conn, err := d.connect(d.life, protocol, address)
	if err != nil {
		return nil, err
	}
	return &mortal{Conn: conn, forget: context.AfterFunc(d.life, func() { _ = conn.Close() })}, nil
}

// mortal is a connection whose Close also removes it from the life of its client.
type mortal struct {
	net.Conn
	forget func() bool
}

func (c *mortal) Close() error {
	c.forget()
	return c.Conn.Close()
}

// writer implements [kafka.Writer].
type writer struct{ publisher message.Publisher }

func (w writer) Close() error { return w.publisher.Close() }

type sendingKey struct{}

// sending is a record that is being written. sarama stores the partition and the offset in sent.
type sending struct {
	record *kgo.Record
	sent   *sarama.ProducerMessage
}

// Write publishes a message with the record's headers as its metadata.
func (w writer) Write(r *kgo.Record) error {
	m := message.NewMessage("", r.Value)
	for _, h := range r.Headers {
		if h.Key == kafka.HeaderWatermillUUID {
			m.UUID = string(h.Value)
		} else {
			m.Metadata.Set(h.Key, string(h.Value))
		}
	}
	s := &sending{record: r}
	m.SetContext(context.WithValue(context.Background(), sendingKey{}, s))
	if err := kafkaError(w.publisher.Publish(r.Topic, m)); err != nil {
		return err
	}
	if s.sent != nil {
		r.Partition, r.Offset = s.sent.Partition, s.sent.Offset
	}
	return nil
}

// marshaler makes the records of messages.
type marshaler struct {
	custom wmkafka.Marshaler // nil: the same record as with franz-go
}

func (f marshaler) Marshal(topic string, m *message.Message) (*sarama.ProducerMessage, error) {
	s, ok := m.Context().Value(sendingKey{}).(*sending)
	if !ok {
		return nil, errors.New("the message was not made by this sink")
	}
	var err error
	if f.custom != nil {
		if s.sent, err = f.custom.Marshal(topic, m); err != nil {
			err = sinks.Invalid(err)
		}
		return s.sent, err
	}
	if s.sent, err = (wmkafka.DefaultMarshaler{}).Marshal(topic, m); err != nil {
		return nil, err
	}
	s.sent.Timestamp = s.record.Timestamp
	if s.record.Key != nil {
		s.sent.Key = sarama.ByteEncoder(s.record.Key)
	}
	return s.sent, nil
}

// RecordOf converts a record that was read with sarama, for [kafka.Envelope].
func RecordOf(m *sarama.ConsumerMessage) kafka.Record {
	r := kafka.Record{Key: m.Key, Value: m.Value, Headers: make([]kafka.Header, 0, len(m.Headers))}
	for _, h := range m.Headers {
		if h != nil {
			r.Headers = append(r.Headers, kafka.Header{Key: string(h.Key), Value: h.Value})
		}
	}
	return r
}
