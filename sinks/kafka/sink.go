package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// Kind is the name behind "kind:" in the configuration.
const Kind = "kafka"

// Register adds the kind to a set.
func Register(set *sinks.Set) error {
	return sinks.Register(set, Kind, "Writes each notification as a record to a Kafka topic.",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) })
}

// Sink writes deliveries to Kafka, to one topic or to those that its template
// names. Its methods may be called in
// parallel; Close comes last.
//
// The client gathers what is in flight at the same time into batches, so
// throughput comes from many parallel calls of Deliver: 256 are a good
// parallelism threshold.
type Sink struct {
	topic     topic
	logger    *slog.Logger
	connector *connector

	// alone is held exclusively by a delivery that must not share a batch.
	alone        sync.RWMutex
	warnRejected sync.Once
}

var (
	_ sinks.Sink          = (*Sink)(nil)
	_ sinks.Closer        = (*Sink)(nil)
	_ sinks.HealthChecker = (*Sink)(nil)
)

// New returns a sink for the configuration, which it validates. It starts and
// connects nothing: the first delivery does.
func New(in sinks.Instance, c Config) (*Sink, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	config, err := c.saramaConfig(in.Name)
	if err != nil {
		return nil, err
	}
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	logger := in.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if c.SASL.plain() && !c.TLS.Enabled {
		logger.Warn("kafka gets the password in the clear: sasl.mechanism is PLAIN and tls is off", "sink", in.Name)
	}
	topic, err := newTopic(c.Topic)
	if err != nil {
		return nil, fmt.Errorf("topic: %w", err)
	}
	connector := &connector{brokers: c.Brokers, config: config, source: c.CloudEvents.Source}
	if !isTemplate(c.Topic) {
		connector.topic = c.Topic
	}
	return &Sink{topic: topic, logger: logger, connector: connector}, nil
}

// Deliver stores one record and returns where: "kafka orders/3@1042", or
// without the offset where the broker recognized a copy of a record that it had
// stored before.
//
// ctx is looked at before the record is sent. Then Deliver waits for the
// outcome, for which the configured timeout sets the limit, so that nothing is
// ever left behind in the client. A failure after ctx ended is reported as the
// context's error, a success as the success that it is.
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	topic, err := s.topic(d.Envelope)
	if err != nil {
		return "", sinks.Permanent(err)
	}
	publisher, err := s.connector.await(ctx, topic)
	if err != nil {
		return "", err
	}
	p := &publication{envelope: d.Envelope}
	err = s.publish(publisher, topic, p)
	if blamesBatch(err) && ctx.Err() == nil {
		err = s.publishAlone(publisher, topic, p, err)
	}
	switch {
	case err == nil:
		return p.receipt(), nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	}
	return "", s.connector.failed(topic, err)
}

// CheckHealth asks the cluster for the topic, over a connection of its own, and
// returns the classed error that a delivery would meet. Where brokers create
// topics that are asked for, this creates it just as the first delivery would.
// Of a topic from data it only finds out whether the cluster answers.
func (s *Sink) CheckHealth(ctx context.Context) error {
	return s.connector.check(ctx)
}

// Close ends the connections. When ctx ends first it returns the context's
// error, and the rest ends by itself within the configured timeout.
func (s *Sink) Close(ctx context.Context) error {
	return s.connector.close(ctx)
}

func (s *Sink) publish(publisher *wmkafka.Publisher, topic string, p *publication) error {
	s.alone.RLock()
	defer s.alone.RUnlock()
	return publisher.Publish(topic, p.message())
}

// publishAlone sends a record again whose batch was rejected, while nothing else
// is in flight: then the batch is this record, and the broker's word is about
// it.
func (s *Sink) publishAlone(publisher *wmkafka.Publisher, topic string, p *publication, rejected error) error {
	s.warnRejected.Do(func() {
		s.logger.Warn("kafka rejected a batch, sending its records one by one, which is slow; max_message_bytes may be above the topic's max.message.bytes",
			"topic", topic, "type", p.envelope.Type, "id", p.envelope.ID, "error", rejected)
	})
	s.alone.Lock()
	defer s.alone.Unlock()
	return publisher.Publish(topic, p.message())
}
