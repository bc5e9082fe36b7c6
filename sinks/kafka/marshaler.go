package kafka

import (
	"context"
	"errors"
	"strconv"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/notification"
)

// noOffset marks a record whose offset the broker did not tell: it recognized a
// copy that it had stored before.
const noOffset = -1

// publication is one envelope on its way to a topic. Through Watermill's
// publisher it travels in the message's context, so that the marshaler needs no
// copy of the envelope.
type publication struct {
	envelope *notification.Envelope
	topic    string
	record   sarama.ProducerMessage // tells where it was stored
	key      data
	payload  data
	err      error // what came of it, as the client said it
}

type publicationKey struct{}

// message wraps the publication for Watermill. It is made without
// message.NewMessage, whose channels for acknowledgements would not be used.
func (p *publication) message() *message.Message {
	m := &message.Message{UUID: p.envelope.ID, Payload: p.envelope.Payload}
	m.SetContext(context.WithValue(context.Background(), publicationKey{}, p))
	return m
}

// receipt names where the record is: "kafka orders/3@1042".
func (p *publication) receipt() notification.Receipt {
	var room [len("kafka /@") + maxTopicNameLength + 2*20]byte // two decimals of 64 bits
	b := append(room[:0], "kafka "...)
	b = append(b, p.record.Topic...)
	b = append(b, '/')
	b = strconv.AppendInt(b, int64(p.record.Partition), 10)
	if p.record.Offset != noOffset {
		b = append(b, '@')
		b = strconv.AppendInt(b, p.record.Offset, 10)
	}
	return notification.Receipt(b)
}

// data is a key or a value. Unlike sarama.ByteEncoder it is no allocation when it
// stands in the publication.
type data []byte

func (d *data) Encode() ([]byte, error) { return *d, nil }
func (d *data) Length() int             { return len(*d) }

// marshaler makes the record of a publication. See the package's documentation
// for its form.
type marshaler struct {
	source string // of events; "" for the format json
}

var _ wmkafka.Marshaler = marshaler{}

func (f marshaler) Marshal(_ string, m *message.Message) (*sarama.ProducerMessage, error) {
	p, ok := m.Context().Value(publicationKey{}).(*publication)
	if !ok {
		return nil, errors.New("the message was not made by this sink")
	}
	f.fill(p)
	return &p.record, nil
}

// fill makes the record. Nothing of one that was sent before stays.
func (f marshaler) fill(p *publication) {
	e := p.envelope
	p.payload = e.Payload
	if p.payload == nil {
		p.payload = data{} // null would be a tombstone, which deletes the key from a compacted topic
	}
	p.record = sarama.ProducerMessage{
		Topic:     p.topic,
		Value:     &p.payload,
		Headers:   f.headers(e),
		Metadata:  p,
		Timestamp: e.OccurredOn,
		Offset:    noOffset,
	}
	if e.Key != "" {
		p.key = data(e.Key)
		p.record.Key = &p.key
	}
}

func (f marshaler) headers(e *notification.Envelope) []sarama.RecordHeader {
	if f.source != "" {
		return eventHeaders(e, f.source)
	}
	return plainHeaders(e)
}
