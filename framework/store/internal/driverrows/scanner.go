package driverrows

import (
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	// chunkBytes is the maximum size of a chunk that payloads share.
	chunkBytes = 64 << 10
	// envelopeBytes is roughly the size of an envelope without its texts.
	envelopeBytes = 200
)

// Scanner makes envelopes of rows. A backlog spends its time here: payloads share chunks of memory,
// and repeated values (types, metadata) are kept once.
type Scanner struct {
	Envelopes []notification.Envelope
	Bytes     int  // roughly what the envelopes take
	Cut       bool // the page is full, and there are more rows; see ScanPage

	format   *Format
	lastTwo  [2]int // sizes of the last two rows, in any order
	chunk    []byte // payloads, up to its capacity
	types    map[string]string
	metadata map[string]notification.Metadata
}

// Scanner returns a scanner for roughly that many rows, which are released together; 0 if they may be
// released at different times, and so must not share memory.
func (f *Format) Scanner(rows int) *Scanner {
	return &Scanner{
		format:    f,
		Envelopes: make([]notification.Envelope, 0, rows),
		types:     make(map[string]string),
		metadata:  make(map[string]notification.Metadata),
	}
}

// valid returns a text that is UTF-8 and no longer: SQLite also takes others, whose rows could not be found again by
// what JSON makes of them.
func valid(text string) string { return strings.ToValidUTF8(text, "?") }

// Scan adds the envelope of one row, and returns the values after its columns. These are offset, slot,
// id, type, version, key, occurred_on, deliver_at, metadata and payload.
func (s *Scanner) Scan(row []driver.Value) (rest *Values, err error) {
	v := s.format.Values(row)
	e := notification.Envelope{
		Offset: v.Integer(),
		Slot:   int(v.Integer()),
		ID:     valid(v.Text()),
	}
	e.Type, _ = shared(v, s.types, valid)
	e.Version, e.Key = int(v.Integer()), valid(v.Text())
	e.OccurredOn, e.DeliverAt = v.Time(), v.Time()
	var metadata int
	e.Metadata, metadata = shared(v, s.metadata, func(text string) notification.Metadata { return store.DecodeMetadata([]byte(text)) })
	payload := v.Bytes()
	if v.err != nil {
		return nil, fmt.Errorf("offset %d: %w", e.Offset, v.err)
	}
	e.Payload = s.keep(payload)
	size := len(e.Payload) + len(e.Key) + len(e.ID) + metadata + envelopeBytes
	s.Bytes += size
	s.lastTwo[len(s.Envelopes)%2] = size
	s.Envelopes = append(s.Envelopes, e)
	return v, nil
}

// RowBytes estimates the size of the next rows: the average so far, or the smaller one of the last
// two if that is larger. There must be rows.
func (s *Scanner) RowBytes() int {
	return max(s.Bytes/len(s.Envelopes), min(s.lastTwo[0], s.lastTwo[1]))
}

// Last returns the envelope of the last row. There must be one.
func (s *Scanner) Last() notification.Envelope { return s.Envelopes[len(s.Envelopes)-1] }

// shared reads a column with few values. first makes something of each of them once.
func shared[T any](v *Values, known map[string]T, first func(text string) T) (made T, size int) {
	if text, ok := v.left[0].([]byte); ok {
		if made, ok := known[string(text)]; ok { // the compiler does not copy text here
			v.next()
			return made, len(text)
		}
	}
	text := v.Text()
	made, ok := known[text]
	if !ok {
		made = first(text)
		known[text] = made
	}
	return made, len(text)
}

// keep copies a payload, since the driver reuses it. No copy can grow into the next
// one, and none is nil.
func (s *Scanner) keep(payload []byte) []byte {
	if s.chunk == nil || len(payload) > cap(s.chunk)-len(s.chunk) {
		// Room for the expected rows, if they are like this one.
		rows := max(1, cap(s.Envelopes)-len(s.Envelopes))
		s.chunk = make([]byte, 0, max(len(payload), min(chunkBytes, rows*len(payload))))
	}
	begin := len(s.chunk)
	s.chunk = append(s.chunk, payload...)
	return s.chunk[begin:len(s.chunk):len(s.chunk)]
}
