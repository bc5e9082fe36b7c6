package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/singleflight"

	"github.com/waybill-go/waybill/sinks"
)

// watermill makes clients of Watermill's publisher, which uses sarama.
type watermill struct {
	config  Config
	sarama  *sarama.Config
	network network
	franz   franz
}

func newWatermill(c Config, r access, f franz) (watermill, error) {
	w := watermill{config: c, network: r.network, franz: f, sarama: c.saramaConfig(r.sasl, r.token)}
	return w, w.sarama.Validate()
}

// saramaConfig returns the configuration of sarama, which has no limit for a delivery as a
// whole. If a broker accepts connections but never answers, a request ends after five steps:
// one for its answer, three on a new connection, and one at another broker.
func (c *Config) saramaConfig(sasl SASL, token *tokenSource) *sarama.Config {
	conf := sarama.NewConfig()
	conf.ClientID = c.ClientID
	step := c.step()
	conf.Net.DialTimeout, conf.Net.ReadTimeout, conf.Net.WriteTimeout = step, step, step
	conf.Metadata.Timeout, conf.Metadata.RefreshFrequency = step, metadataMaxAge
	conf.Metadata.Full = false // only the topics in use: all topics of a large cluster are megabytes
	conf.Producer.Timeout = step * 4 / 5
	conf.Producer.Retry.Max = retries
	conf.Producer.Transaction.Retry.Max = 3 // for a producer id; the default of 50 would take 5 seconds
	conf.Producer.Return.Successes = true
	conf.Producer.Partitioner = sarama.NewMurmur2Partitioner
	conf.Producer.Compression = codecs[c.Compression].sarama
	conf.Producer.MaxMessageBytes = max(c.MaxMessageBytes, minBatchBytes)
	conf.Producer.RequiredAcks = sarama.WaitForAll
	if c.Acks == AcksLeader {
		conf.Producer.RequiredAcks = sarama.WaitForLocal
	}
	if *c.Idempotent {
		conf.Producer.Idempotent = true
		conf.Net.MaxOpenRequests = 1 // sarama requires it
	}
	if sasl == (SASL{}) {
		return conf
	}
	conf.Net.SASL.Enable, conf.Net.SASL.Mechanism = true, sarama.SASLMechanism(sasl.mechanism())
	conf.Net.SASL.User, conf.Net.SASL.Password = sasl.User, sasl.Password
	if token != nil {
		conf.Net.SASL.TokenProvider = saramaToken{token, step}
	}
	if hash := scramHashes[sasl.mechanism()]; hash != nil {
		conf.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: hash} }
	}
	return conf
}

// saramaToken is a tokenSource for sarama.
type saramaToken struct {
	*tokenSource
	timeout time.Duration
}

func (t saramaToken) Token() (*sarama.AccessToken, error) {
	ctx, cancel := context.WithTimeout(context.Background(), t.timeout)
	defer cancel()
	token, err := t.get(ctx)
	return &sarama.AccessToken{Token: token.Text, Extensions: token.Extensions}, err
}

// open returns a client whose connections end with life.
func (w watermill) open(life context.Context) client {
	conf := *w.sarama
	conf.Net.Proxy.Enable, conf.Net.Proxy.Dialer = true, dialer{life, w.network}
	pause := func(try, _ int) time.Duration {
		if life.Err() != nil {
			return 0
		}
		return backoff(try)
	}
	conf.Producer.Retry.BackoffFunc, conf.Metadata.Retry.BackoffFunc = pause, pause
	return &watermillClient{watermill: w, sarama: &conf, prober: w.franz.client()}
}

// watermillClient writes with Watermill's publisher.
type watermillClient struct {
	watermill
	sarama *sarama.Config

	// This client checks access and topics before the publisher is used. sarama reports little
	// about a cluster that denies access. And after three records for a missing topic,
	// sarama's breaker would delay the records of all other topics.
	prober *kgo.Client
	probes singleflight.Group
	found  sync.Map // existing topics, by name

	using     sync.RWMutex // held for writing to change the fields below
	publisher message.Publisher
	closed    bool
}

func (c *watermillClient) produce(ctx context.Context, list []*publication) {
	for _, p := range list {
		if p.err = c.probe(ctx, p.topic); p.err == nil && p.canGo() {
			p.err = c.publish(p)
		}
	}
}

// probe checks that the topic exists, and makes the publisher if there is none.
func (c *watermillClient) probe(ctx context.Context, topic string) error {
	if _, ok := c.found.Load(topic); ok {
		return nil
	}
	answer := c.probes.DoChan(topic, func() (any, error) {
		err := c.franz.checkTopic(ctx, c.prober, topic)
		if err != nil && !isProtocol(err) {
			err = &connectError{err}
		}
		if err == nil {
			err = c.connect(ctx)
		}
		if err == nil {
			c.found.Store(topic, nil)
		}
		return nil, err
	})
	select {
	case a := <-answer:
		return a.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// connect makes the publisher, unless there is one or the client is closed.
func (c *watermillClient) connect(ctx context.Context) error {
	c.using.Lock()
	defer c.using.Unlock()
	if c.publisher != nil || c.closed {
		return nil
	}
	if *c.config.Idempotent {
		if _, _, err := c.prober.ProducerID(ctx); err != nil {
			return &connectError{err}
		}
	}
	var publisher message.Publisher
	publisher, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{
		Brokers: c.config.Brokers, Marshaler: marshaler{c.config.Marshaler}, OverwriteSaramaConfig: c.sarama,
	}, nil)
	for _, decorate := range c.config.Decorators {
		if err == nil {
			publisher, err = decorate(publisher)
		}
	}
	if err != nil {
		return &connectError{kafkaError(err)}
	}
	c.publisher = publisher
	return nil
}

func (c *watermillClient) publish(p *publication) error {
	c.using.RLock()
	defer c.using.RUnlock()
	if c.closed {
		return ErrClosed
	}
	if err := kafkaError(c.publisher.Publish(p.topic, p.message())); err != nil {
		c.found.Delete(p.topic) // it may be gone, which sarama's breaker hides
		return err
	}
	if p.sent != nil {
		p.record.Partition, p.record.Offset = p.sent.Partition, p.sent.Offset
	}
	return nil
}

// close closes the publisher. Its connections have ended with the life of the client.
func (c *watermillClient) close() {
	c.prober.Close()
	c.using.Lock()
	defer c.using.Unlock()
	if c.publisher != nil && !c.closed {
		_ = c.publisher.Close()
	}
	c.closed = true
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
		return fmt.Errorf("%w: %w", ErrTooLarge, err) // the configuration itself was accepted
	case errors.As(err, &protocol):
		return fmt.Errorf("%w: %w", kerr.ErrorForCode(int16(protocol)), err)
	}
	return err
}

// dialer makes the connections of sarama, whose interface has no context. All connections end
// with life, and none is made after that.
type dialer struct {
	life    context.Context
	network network
}

func (d dialer) Dial(protocol, address string) (net.Conn, error) {
	if d.life.Err() != nil {
		return nil, context.Cause(d.life)
	}
	conn, err := d.network.connect(d.life, protocol, address)
	if err != nil {
		return nil, err
	}
	return &connection{Conn: conn, forget: context.AfterFunc(d.life, func() { _ = conn.Close() })}, nil
}

// connection is a connection whose Close also removes it from the life of its client.
type connection struct {
	net.Conn
	forget func() bool
}

func (c *connection) Close() error {
	c.forget()
	return c.Conn.Close()
}

type publicationKey struct{}

// message makes the Watermill message of a publication. The record's headers are its metadata.
func (p *publication) message() *message.Message {
	m := message.NewMessage(p.envelope.ID, p.record.Value)
	for _, h := range p.record.Headers {
		if h.Key != HeaderWatermillUUID {
			m.Metadata.Set(h.Key, string(h.Value))
		}
	}
	m.SetContext(context.WithValue(context.Background(), publicationKey{}, p))
	return m
}

// marshaler makes the records of messages. It keeps each record, because sarama stores the
// partition and the offset there.
type marshaler struct {
	custom wmkafka.Marshaler // nil: the same record as with franz-go
}

func (f marshaler) Marshal(topic string, m *message.Message) (*sarama.ProducerMessage, error) {
	p, ok := m.Context().Value(publicationKey{}).(*publication)
	if !ok {
		return nil, errors.New("the message was not made by this sink")
	}
	if f.custom != nil {
		r, err := f.custom.Marshal(topic, m)
		p.sent = r
		if err != nil {
			err = sinks.Invalid(err)
		}
		return r, err
	}
	r, err := wmkafka.DefaultMarshaler{}.Marshal(topic, m)
	if err != nil {
		return nil, err
	}
	r.Timestamp = p.record.Timestamp
	if p.record.Key != nil {
		r.Key = sarama.ByteEncoder(p.record.Key)
	}
	p.sent = r
	return r, nil
}
