package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

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

	// life ends when the connections are cut, which ends all that is in flight with its
	// cause.
	life context.Context
	cut  context.CancelCauseFunc

	using  sync.RWMutex // held for writing by close, which sarama wants alone
	closed bool
}

// newProducer connects. The connections end with parent, too.
func newProducer(parent context.Context, n network, brokers []string, config *sarama.Config, m marshaler) (*producer, error) {
	w := &producer{marshaler: m}
	w.life, w.cut = context.WithCancelCause(parent)
	n.life = w.life
	var inside tap
	publisher, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{
		Brokers:               brokers,
		Marshaler:             m,
		OverwriteSaramaConfig: n.over(config),
		Tracer:                &inside,
	}, nil)
	if err != nil {
		w.cut(err)
		return nil, err
	}
	w.publisher, w.sarama = publisher, inside.producer
	return w, nil
}

// publish writes one record, and sets its err.
func (w *producer) publish(p *publication) {
	w.using.RLock()
	defer w.using.RUnlock()
	if w.closed {
		p.err = w.end()
		return
	}
	p.err = w.explain(w.publisher.Publish(p.topic, p.message()))
}

// end is why the producer takes no more records.
func (w *producer) end() error { return cmp.Or(context.Cause(w.life), ErrClosed) }

// explain says that an error comes from the cut, if it may.
func (w *producer) explain(err error) error {
	if err == nil || w.life.Err() == nil {
		return err
	}
	if f, _ := faultOf(err); f == ofCluster || f == unclear {
		return fmt.Errorf("%w: %w", context.Cause(w.life), err)
	}
	return err
}

// publishAll writes records at once, and sets the err of each. Watermill's
// Publish would wait for each before it sends the next.
func (w *producer) publishAll(list []*publication) {
	w.using.RLock()
	defer w.using.RUnlock()
	if w.closed {
		for _, p := range list {
			p.err = w.end()
		}
		return
	}
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
			f.Msg.Metadata.(*publication).err = w.explain(f.Err)
		}
	case err != nil:
		for _, p := range list {
			p.err = w.explain(err)
		}
	}
}

// close waits for what is in flight.
func (w *producer) close() error {
	w.using.Lock()
	defer w.using.Unlock()
	w.closed = true
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
