package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/cloudevents"
	"github.com/waybill-go/waybill/sinks/internal/envelope"
)

// CollectionSize returns 0: a collection can have any number of members. With [CollectionArray] they
// must fit into a record.
func (s *Sink) CollectionSize() int { return 0 }

// DeliverCollection writes all members to one topic, as Config.Collection says. If the template of the
// topic does not give the same one for all, the collection is invalid, with a [*sinks.DifferError].
//
// Nothing is written unless every record can be. Kafka may still store some records and refuse
// another: then the error is that of the first which failed, and the stored ones come again if the
// collection does. The receipt is that of the first record, with the number of the others.
func (s *Sink) DeliverCollection(ctx context.Context, c *sinks.Collection) (notification.Receipt, error) {
	list, err := s.publicationsOf(ctx, c)
	if err != nil {
		return "", err
	}
	w, err := s.session(ctx)
	if err != nil {
		return "", err
	}
	defer s.running.Done()
	s.write(ctx, w, list)
	for _, p := range list {
		if _, err := s.outcome(ctx, w, p); err != nil && !errors.Is(err, errPreviousFailed) {
			return "", err
		}
	}
	receipt := list[0].receipt()
	if more := len(list) - 1; more > 0 {
		receipt += notification.Receipt(fmt.Sprintf(" and %d more", more))
	}
	return receipt, nil
}

// publicationsOf makes the publications of a collection, unless one of them cannot be sent.
func (s *Sink) publicationsOf(ctx context.Context, c *sinks.Collection) ([]*publication, error) {
	topic, err := sinks.Common(c, "topic", func(d *notification.Delivery) (string, error) { return s.topic(d.Envelope) })
	if err != nil {
		return nil, err
	}
	if s.config.Collection == CollectionArray {
		p := &publication{envelope: arrayOf(c)}
		if err := s.prepareFor(ctx, topic, p); err != nil {
			return nil, err
		}
		if s.store(ctx, []*publication{p}); p.err != nil {
			return nil, p.err
		}
		p.record.Headers = slices.DeleteFunc(p.record.Headers, func(h kgo.RecordHeader) bool { return h.Key == HeaderType || h.Key == HeaderVersion })
		return []*publication{p}, nil
	}
	_, list := s.publications(ctx, c.Members)
	for _, p := range list {
		if p.err != nil {
			return nil, fmt.Errorf("%s: %w", p.envelope.ID, p.err)
		}
	}
	return list, nil
}

// arrayOf returns an envelope with all members as its payload. It occurred when the last member did.
func arrayOf(c *sinks.Collection) *notification.Envelope {
	payload, _ := envelope.AppendArray(nil, c.Members, 0, func(b []byte, d *notification.Delivery) []byte {
		return envelope.Append(b, d.Envelope, d.Metadata, cloudevents.ContentType(d.Metadata, cloudevents.IsString))
	})
	return &notification.Envelope{
		ID: c.ID, Key: c.Group, OccurredOn: c.Members[len(c.Members)-1].OccurredOn, Payload: payload,
		Metadata: notification.Metadata{notification.MetadataContentType: "application/json"},
	}
}
