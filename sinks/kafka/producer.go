package kafka

import (
	"errors"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
)

// producer writes records: one through Watermill's publisher, several at once
// through the sarama producer that the publisher stands on. Both are one client
// with one producer id, so the order of a partition is one as well. Its methods
// may be called in parallel.
type producer struct {
	publisher *wmkafka.Publisher
	sarama    sarama.SyncProducer
	marshaler marshaler
	asking    sarama.Client // for topics from data; nil where the configuration names the topic
}

func newProducer(brokers []string, config *sarama.Config, m marshaler) (*producer, error) {
	var inside tap
	publisher, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{
		Brokers:               brokers,
		Marshaler:             m,
		OverwriteSaramaConfig: config,
		Tracer:                &inside,
	}, nil)
	if err != nil {
		return nil, err
	}
	return &producer{publisher: publisher, sarama: inside.producer, marshaler: m}, nil
}

// publish writes one record, and sets its err.
func (w *producer) publish(p *publication) {
	p.err = w.publisher.Publish(p.topic, p.message())
}

// publishAll writes records at once, and sets the err of each. Watermill's
// Publish would wait for each before it sends the next.
func (w *producer) publishAll(list []*publication) {
	records := make([]*sarama.ProducerMessage, len(list))
	for i, p := range list {
		w.marshaler.fill(p)
		p.err = nil
		records[i] = &p.record
	}
	var failed sarama.ProducerErrors
	switch err := w.sarama.SendMessages(records); {
	case errors.As(err, &failed):
		for _, f := range failed {
			f.Msg.Metadata.(*publication).err = f.Err
		}
	case err != nil:
		for _, p := range list {
			p.err = err
		}
	}
}

func (w *producer) close() error {
	err := w.publisher.Close()
	if w.asking != nil {
		err = errors.Join(err, w.asking.Close())
	}
	return err
}

// tap keeps the producer inside a publisher, which has no other way to it. A
// publisher uses none of the tracer's other methods.
type tap struct {
	wmkafka.SaramaTracer
	producer sarama.SyncProducer
}

func (t *tap) WrapSyncProducer(_ *sarama.Config, p sarama.SyncProducer) sarama.SyncProducer {
	t.producer = p
	return p
}
