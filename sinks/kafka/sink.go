package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// Kind is the sink kind kafka.
func Kind() sinks.Kind {
	return sinks.NewKind("kafka", "Writes each notification as a record to a Kafka topic.",
		func(in sinks.Instance, c Config) (sinks.Sink, error) { return New(in, c) }, answers...)
}

// Sink writes deliveries to Kafka, to one topic or to those that its template
// names. Its methods may be called in parallel; Close comes last.
//
// The client gathers what is in flight at the same time into requests, so
// throughput comes from batches, and from several at a time.
//
// It is no [sinks.Addresser], also where data names the topics: nearly all that can go
// wrong is the cluster's, and would open a breaker for each topic.
type Sink struct {
	topic     topic
	batch     Batch
	logger    *slog.Logger
	connector *connector

	// alone is held exclusively by what must not share a request.
	alone        sync.RWMutex
	warnRejected sync.Once
}

var (
	_ sinks.Sink          = (*Sink)(nil)
	_ sinks.Batcher       = (*Sink)(nil)
	_ sinks.Closer        = (*Sink)(nil)
	_ sinks.HealthChecker = (*Sink)(nil)
)

// New returns a sink for the configuration, which it validates, its defaults set. It
// starts and connects nothing: the first delivery does.
func New(in sinks.Instance, c Config) (*Sink, error) {
	c.SetDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	config := c.saramaConfig(in.Name)
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	logger := in.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	n := network{dial: in.Dial, timeout: config.Net.DialTimeout}
	if n.dial == nil {
		n.dial = new(net.Dialer).DialContext
	}
	var err error
	if n.encrypt, err = c.TLS.encryption(c.TLSConfig, logger); err != nil {
		return nil, err
	}
	if sasl := c.SASL.with(c.TokenProvider); sasl.clear() && n.encrypt == nil {
		logger.Warn("kafka gets the password or token in the clear: tls is off", "sink", in.Name, "mechanism", sasl.mechanism())
	}
	topic, err := newTopic(c.Topic)
	if err != nil {
		return nil, fmt.Errorf("topic: %w", err)
	}
	connector := newConnector(c.Brokers, config, n)
	connector.source = c.CloudEvents.Source
	if !isTemplate(c.Topic) {
		connector.topic = c.Topic
	}
	return &Sink{topic: topic, batch: c.Batch, logger: logger, connector: connector}, nil
}

// Deliver stores one record and returns where: "kafka orders/3@1042", or
// without the offset where the broker recognized a copy of a record that it had
// stored before.
//
// It returns about a second after ctx ended, at the latest, and leaves nothing behind in
// the client; see "Time" in the package's documentation. A failure after ctx ended is
// reported as the context's error, unless the time passed because of the cluster, a success as the
// success that it is.
func (s *Sink) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	p := &publication{envelope: d.Envelope}
	producer, err := s.prepare(ctx, p)
	if err != nil {
		return "", err
	}
	if err := s.connector.awaitTopic(ctx, producer, p.topic); err != nil {
		return "", err
	}
	s.publish(ctx, producer, p)
	return s.outcome(ctx, producer, p)
}

// CheckHealth asks the cluster for the topic, over a connection of its own, and
// returns the classed error that a delivery would meet. Where brokers create
// topics that are asked for, this creates it just as the first delivery would.
// Of a topic from data it only finds out whether the cluster answers.
func (s *Sink) CheckHealth(ctx context.Context) error {
	return s.connector.check(ctx)
}

// Close ends the connections, when what is in flight has ended. When ctx ends first it
// returns the context's error and cuts them, which ends what is in flight.
func (s *Sink) Close(ctx context.Context) error {
	return s.connector.close(ctx)
}

// prepare names the publication's topic, and returns the producer once there is
// one.
func (s *Sink) prepare(ctx context.Context, p *publication) (*producer, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	topic, err := s.topic(p.envelope)
	if err != nil {
		return nil, sinks.Permanent(err)
	}
	p.topic = topic
	return s.connector.awaitProducer(ctx)
}

func (s *Sink) publish(ctx context.Context, producer *producer, p *publication) {
	defer s.connector.limit(ctx, producer)()
	s.alone.RLock()
	producer.publish(p)
	s.alone.RUnlock()
	if blamesBatch(p.err) {
		s.isolate(ctx, producer, []*publication{p})
	}
}

// isolate sends records again whose batch was rejected, while nothing else is in
// flight, in halves until each has gone through or was rejected alone: then the
// broker's word is about that record. It stops when ctx ends.
func (s *Sink) isolate(ctx context.Context, producer *producer, list []*publication) {
	s.warnRejected.Do(func() {
		p := list[0]
		s.logger.Warn("kafka rejected a batch, sending its records again in parts, which is slow; max_message_bytes may be above the topic's max.message.bytes",
			"topic", p.topic, "type", p.envelope.Type, "id", p.envelope.ID, "error", p.err)
	})
	s.alone.Lock()
	defer s.alone.Unlock()
	halve(ctx, producer, list)
}

func halve(ctx context.Context, producer *producer, list []*publication) {
	for half := range slices.Chunk(list, (len(list)+1)/2) {
		if ctx.Err() != nil {
			return
		}
		producer.publishAll(half)
		if rejected := rejectedOf(half); len(half) > 1 && len(rejected) > 0 {
			halve(ctx, producer, rejected)
		}
	}
}

// rejectedOf returns those that a broker may have rejected for another's sake.
func rejectedOf(list []*publication) []*publication {
	var rejected []*publication
	for _, p := range list {
		if blamesBatch(p.err) {
			rejected = append(rejected, p)
		}
	}
	return rejected
}

// outcome is what came of a publication that was sent.
func (s *Sink) outcome(ctx context.Context, w *producer, p *publication) (notification.Receipt, error) {
	switch {
	case p.err == nil:
		return p.receipt(), nil
	case ctx.Err() == nil:
		return "", s.connector.failed(ctx, w, p.topic, p.err)
	}
	if f, _ := faultOf(p.err); f == ofCluster && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "", s.connector.failed(ctx, w, p.topic, p.err) // it took so long because of the cluster
	}
	return "", ctx.Err()
}
