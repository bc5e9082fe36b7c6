package kafka

import (
	"context"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/notification"
)

// noOffset is the offset of a record that the broker recognized as a duplicate: the broker
// then does not return an offset.
const noOffset = -1

// publication is one envelope that is being written to a topic.
type publication struct {
	// Context makes a publication the context of its record, so that the record leads back to
	// it.
	context.Context

	envelope *notification.Envelope
	topic    string
	// encoded is what is written instead of the payload, and contentType its media type; nil and "" without
	// encoding.
	encoded     []byte
	contentType string
	tombstone   bool       // the value is null
	large       bool       // the value must be stored, and a pointer written
	record      kgo.Record // has the partition and the offset when it is stored

	previous *publication // the previous record of the key, which must be stored first
	batch    batch        // the client's batch with the record
	deferred bool         // the record must wait until previous is stored
	stored   bool
	err      error // why it is not stored
}

// fill makes the record. The package documentation describes its form.
func (p *publication) fill(topic, source string) {
	e := p.envelope
	p.Context = context.Background()
	p.topic = topic
	p.record = kgo.Record{Topic: topic, Value: e.Payload, Timestamp: e.OccurredOn, Offset: noOffset, Context: p}
	if p.encoded != nil {
		p.record.Value = p.encoded
	}
	switch {
	case p.tombstone:
		p.record.Value = nil // null deletes the key from a compacted topic
	case p.record.Value == nil:
		p.record.Value = []byte{}
	}
	if e.Key != "" {
		p.record.Key = []byte(e.Key)
	}
	if source != "" {
		p.record.Headers = eventHeaders(e, source, p.contentType)
	} else {
		p.record.Headers = plainHeaders(e, p.contentType)
	}
}

// size returns the maximum number of bytes of a batch with only this record.
func (p *publication) size() int {
	const (
		batch  = 80 // a batch without records
		record = 40 // lengths, times and the number of headers
		header = 10 // two lengths
	)
	n := batch + record + len(p.record.Key) + len(p.record.Value)
	for _, h := range p.record.Headers {
		n += header + len(h.Key) + len(h.Value)
	}
	return n
}

// canGo reports whether the publication may be written. It fails the publication if the
// previous one of its key has failed.
func (p *publication) canGo() bool {
	if p.err == nil && p.previous != nil && p.previous.err != nil {
		p.err = errPreviousFailed
	}
	return p.err == nil
}

// receipt returns topic, partition and offset: "kafka orders/3@1042".
func (p *publication) receipt() notification.Receipt {
	var room [len("kafka /@") + maxTopicNameLength + 2*20]byte // a 64-bit number has up to 20 digits
	b := append(room[:0], "kafka "...)
	b = append(b, p.topic...)
	b = append(b, '/')
	b = strconv.AppendInt(b, int64(p.record.Partition), 10)
	if p.record.Offset != noOffset {
		b = append(b, '@')
		b = strconv.AppendInt(b, p.record.Offset, 10)
	}
	return notification.Receipt(b)
}

// write writes publications, those of a key in order, and sets the err of each.
func (s *Sink) write(ctx context.Context, w *session, list []*publication) {
	sending, done := s.limit(ctx, w)
	defer done()
	s.exclusive.RLock()
	publish(sending, w, list)
	s.exclusive.RUnlock()
	if slices.ContainsFunc(list, (*publication).rejectedWithBatch) {
		s.isolate(sending, w, list)
	}
}

// publish passes publications to the client, and deferred ones again, until each is stored or
// has failed.
func publish(ctx context.Context, w client, list []*publication) {
	for {
		ready := make([]*publication, 0, len(list))
		for _, p := range list {
			if p.canGo() {
				ready = append(ready, p)
			}
		}
		if len(ready) == 0 {
			return
		}
		w.produce(ctx, ready)
		list = ready[:0]
		for _, p := range ready {
			if p.deferred {
				p.deferred, p.err = false, nil
				list = append(list, p)
			} else {
				p.stored = p.err == nil
			}
		}
	}
}

// isolate sends records again whose batch was rejected, while nothing else is in flight. It
// sends them in halves, until each record was stored or was rejected alone: then the broker's
// error is about that record. It stops when ctx ends.
func (s *Sink) isolate(ctx context.Context, w *session, list []*publication) {
	rejected := rejectedOf(list)
	s.warnRejected.Do(func() {
		p := rejected[0]
		s.logger.Warn("kafka rejected a batch; its records are sent again in parts, which is slow; max_message_bytes may be above the topic's max.message.bytes",
			"topic", p.topic, "type", p.envelope.Type, "id", p.envelope.ID, "error", p.err)
	})
	s.exclusive.Lock()
	defer s.exclusive.Unlock()
	halve(ctx, w, rejected)
}

func halve(ctx context.Context, w client, list []*publication) {
	for half := range slices.Chunk(list, (len(list)+1)/2) {
		if ctx.Err() != nil {
			return
		}
		for _, p := range half {
			p.err = nil
		}
		publish(ctx, w, half)
		if len(half) > 1 && slices.ContainsFunc(half, (*publication).rejectedWithBatch) {
			halve(ctx, w, rejectedOf(half))
		}
	}
}

// rejectedOf returns the publications that a broker may have rejected because of another one,
// and those that were not written because of them.
func rejectedOf(list []*publication) []*publication {
	var rejected []*publication
	for _, p := range list {
		if p.rejectedWithBatch() || p.err == errPreviousFailed { //nolint:errorlint // never wrapped
			rejected = append(rejected, p)
		}
	}
	return rejected
}
