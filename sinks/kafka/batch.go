package kafka

import (
	"context"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// BatchLimits returns the configured ones. Batches are not ordered: the client
// may have a later record of a key under way when it gives up an earlier one,
// and cannot call it back. So a batch has one record of each key.
func (s *Sink) BatchLimits() sinks.BatchLimits {
	return sinks.BatchLimits{Size: s.batch.Size, Wait: s.batch.Wait}
}

// DeliverBatch stores one record for each delivery, and says of each what
// Deliver would. What is said there of ctx and the time holds for the batch as a
// whole.
func (s *Sink) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	results := make([]sinks.Result, len(batch))
	publications := make([]publication, len(batch))
	producer := s.prepareAll(ctx, batch, publications, results)

	ready := make([]*publication, 0, len(batch))
	for i := range publications {
		if results[i].Err == nil {
			ready = append(ready, &publications[i])
		}
	}
	if len(ready) == 0 {
		return results
	}
	s.publishAll(ctx, producer, ready)
	for i := range publications {
		if results[i].Err == nil {
			results[i].Receipt, results[i].Err = s.outcome(ctx, producer, &publications[i])
		}
	}
	return results
}

// prepareAll does for a batch what Deliver does before it sends. Topics from data
// are looked for at the same time.
func (s *Sink) prepareAll(ctx context.Context, batch []*notification.Delivery, publications []publication, results []sinks.Result) (producer *producer) {
	for i, d := range batch {
		p := &publications[i]
		p.envelope = d.Envelope
		if found, err := s.prepare(ctx, p); err != nil {
			results[i].Err = err
		} else {
			producer = found
			s.connector.search(producer, p.topic)
		}
	}
	for i := range publications {
		if results[i].Err == nil {
			results[i].Err = s.connector.awaitTopic(ctx, producer, publications[i].topic)
		}
	}
	return producer
}

func (s *Sink) publishAll(ctx context.Context, producer *producer, list []*publication) {
	defer s.connector.limit(ctx, producer)()
	s.alone.RLock()
	producer.publishAll(list)
	s.alone.RUnlock()
	if rejected := rejectedOf(list); len(rejected) > 0 {
		s.isolate(ctx, producer, rejected)
	}
}
