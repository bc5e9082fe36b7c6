package mysql

import (
	"database/sql/driver"
	"fmt"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// columns has the columns of an envelope, as scanner reads them.
const (
	columnsBeforePayload = "o.`offset`, slot, id, type, version, `key`, occurred_on, deliver_at, metadata"
	columns              = columnsBeforePayload + ", payload"
)

// scanner converts values of the driver to envelopes. A backlog spends most of its time here, so
// payloads share chunks of memory, and repeated types and metadata are stored once.
type scanner struct {
	envelopes []notification.Envelope
	bytes     int
	seen      int   // how many rows there were
	lastSeen  int64 // the offset of the last of them

	chunk    []byte // memory for payloads, up to its capacity
	types    map[string]string
	metadata map[string]notification.Metadata
}

const (
	// chunkBytes is the largest chunk of memory that payloads share.
	chunkBytes = 64 << 10
	// envelopeBytes is the approximate size of an envelope without its texts.
	envelopeBytes = 200
)

// newScanner returns a scanner that expects about this many rows.
func newScanner(rows int) *scanner {
	return &scanner{
		envelopes: make([]notification.Envelope, 0, min(rows, firstRows)),
		types:     make(map[string]string),
		metadata:  make(map[string]notification.Metadata),
	}
}

// scan reads one row and returns the values after the columns of the envelope.
func (s *scanner) scan(row []driver.Value) (rest *values, err error) {
	v := &values{left: row}
	e := notification.Envelope{
		Offset:  v.integer(),
		Slot:    int(v.integer()),
		ID:      v.text(),
		Type:    s.shareType(v.bytes()),
		Version: int(v.integer()),
		Key:     v.text(),
	}
	e.OccurredOn, e.DeliverAt = v.time(), v.time()
	metadata, payload := v.bytes(), v.bytes()
	if v.err != nil {
		return nil, fmt.Errorf("offset %d: %w", e.Offset, v.err)
	}
	if e.Metadata, err = s.shareMetadata(metadata); err != nil {
		return nil, fmt.Errorf("offset %d: metadata: %w", e.Offset, err)
	}
	e.Payload = s.keep(payload)
	s.bytes += len(e.Payload) + len(e.Key) + len(e.ID) + len(metadata) + envelopeBytes
	s.seen, s.lastSeen = s.seen+1, e.Offset
	s.envelopes = append(s.envelopes, e)
	return v, nil
}

// rowBytes returns the average size of the rows; there is at least one.
func (s *scanner) rowBytes() int { return s.bytes / len(s.envelopes) }

// of returns the envelopes with the given offsets, without those in gaps that the query has covered.
func (s *scanner) of(wanted spans) []notification.Envelope {
	kept, next := s.envelopes[:0], 0
	for i := range s.envelopes {
		for next < len(wanted) && wanted[next].Last < s.envelopes[i].Offset {
			next++
		}
		if next < len(wanted) && wanted[next].First <= s.envelopes[i].Offset {
			kept = append(kept, s.envelopes[i])
		}
	}
	return kept
}

func (s *scanner) shareType(name []byte) string {
	if t, known := s.types[string(name)]; known {
		return t
	}
	t := string(name)
	s.types[t] = t
	return t
}

// shareMetadata decodes the metadata column, once for all rows with the same text.
func (s *scanner) shareMetadata(raw []byte) (notification.Metadata, error) {
	if m, known := s.metadata[string(raw)]; known {
		return m, nil
	}
	m, err := store.DecodeMetadata(raw)
	if err != nil {
		return nil, err
	}
	s.metadata[string(raw)] = m
	return m, nil
}

// keep copies a payload, whose memory belongs to the driver. The copy has no spare capacity, so that
// appending to it does not overwrite the next one.
func (s *scanner) keep(payload []byte) []byte {
	if len(payload) > cap(s.chunk)-len(s.chunk) {
		rows := max(1, cap(s.envelopes)-len(s.envelopes)) // rows that are still expected
		s.chunk = make([]byte, 0, max(len(payload), min(chunkBytes, rows*len(payload))))
	}
	begin := len(s.chunk)
	s.chunk = append(s.chunk, payload...)
	return s.chunk[begin:len(s.chunk):len(s.chunk)]
}
