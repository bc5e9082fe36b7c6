package kafka

import (
	"context"
	"slices"
	"strconv"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/notification"
)

// noOffset marks a record whose offset the broker did not tell: it recognized a
// copy that it had stored before.
const noOffset = -1

// publication is one envelope on its way to a topic.
type publication struct {
	// Context is the record's, which leads back from it to the publication.
	context.Context

	envelope *notification.Envelope
	topic    string
	record   kgo.Record              // tells where it was stored
	sent     *sarama.ProducerMessage // of the client watermill

	behind *publication // the one before it of its key, which has to be stored first
	batch  batch        // of the client, which the record stands in
	held   bool         // the client could not write it yet
	stored bool
	err    error // why it is not stored
}

// fill makes the record. See the package's documentation for its form.
func (p *publication) fill(topic, source string) {
	e := p.envelope
	p.Context = context.Background()
	p.topic = topic
	p.record = kgo.Record{Topic: topic, Value: e.Payload, Timestamp: e.OccurredOn, Offset: noOffset, Context: p}
	if p.record.Value == nil {
		p.record.Value = []byte{} // null would be a tombstone, which deletes the key from a compacted topic
	}
	if e.Key != "" {
		p.record.Key = []byte(e.Key)
	}
	if source != "" {
		p.record.Headers = eventHeaders(e, source)
	} else {
		p.record.Headers = plainHeaders(e)
	}
}

// size is how many bytes a request with this record alone takes at most.
func (p *publication) size() int {
	const (
		batch  = 80 // what stands around the records of a batch
		record = 40 // lengths, times and the number of headers
		header = 10 // two lengths
	)
	n := batch + record + len(p.record.Key) + len(p.record.Value)
	for _, h := range p.record.Headers {
		n += header + len(h.Key) + len(h.Value)
	}
	return n
}

// goes says whether the publication may be written now: unless one before it of its key
// has failed.
func (p *publication) goes() bool {
	if p.err == nil && p.behind != nil && p.behind.err != nil {
		p.err = errBehind
	}
	return p.err == nil
}

// receipt names where the record is: "kafka orders/3@1042".
func (p *publication) receipt() notification.Receipt {
	var room [len("kafka /@") + maxTopicNameLength + 2*20]byte // two decimals of 64 bits
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

// write writes publications, those of a key in their order, and sets the err of each.
func (s *Sink) write(ctx context.Context, w *session, list []*publication) {
	sending, back := s.limit(ctx, w)
	defer back()
	s.alone.RLock()
	publish(sending, w, list)
	s.alone.RUnlock()
	if slices.ContainsFunc(list, (*publication).blamesBatch) {
		s.isolate(sending, w, list)
	}
}

// publish has the client write what may go, until all is stored or has failed.
func publish(ctx context.Context, w client, list []*publication) {
	for {
		ready := make([]*publication, 0, len(list))
		for _, p := range list {
			if p.goes() {
				ready = append(ready, p)
			}
		}
		if len(ready) == 0 {
			return
		}
		w.produce(ctx, ready)
		list = ready[:0]
		for _, p := range ready {
			if p.held {
				p.held, p.err = false, nil
				list = append(list, p)
			} else {
				p.stored = p.err == nil
			}
		}
	}
}

// isolate sends records again whose batch was rejected, while nothing else is in
// flight, in halves until each has gone through or was rejected alone: then the
// broker's word is about that record. It stops when ctx ends.
func (s *Sink) isolate(ctx context.Context, w *session, list []*publication) {
	rejected := rejectedOf(list)
	s.warnRejected.Do(func() {
		p := rejected[0]
		s.logger.Warn("kafka rejected a batch, sending its records again in parts, which is slow; max_message_bytes may be above the topic's max.message.bytes",
			"topic", p.topic, "type", p.envelope.Type, "id", p.envelope.ID, "error", p.err)
	})
	s.alone.Lock()
	defer s.alone.Unlock()
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
		if len(half) > 1 && slices.ContainsFunc(half, (*publication).blamesBatch) {
			halve(ctx, w, rejectedOf(half))
		}
	}
}

// rejectedOf returns those that a broker may have rejected for another's sake, and
// those that wait behind one of their key.
func rejectedOf(list []*publication) []*publication {
	var rejected []*publication
	for _, p := range list {
		if p.blamesBatch() || p.err == errBehind { //nolint:errorlint // it is set as it is
			rejected = append(rejected, p)
		}
	}
	return rejected
}
