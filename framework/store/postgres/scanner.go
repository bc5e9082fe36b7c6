package postgres

import (
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// columns are the columns of an envelope; selected is how scanner reads them: times in binary form,
// which is less work for the server and for the scanner.
const (
	columns  = `"offset", slot, id, type, version, key, occurred_on, deliver_at, metadata, payload`
	selected = `"offset", slot, id, type, version, key, timestamptz_send(occurred_on), timestamptz_send(deliver_at), metadata, payload`
)

// scanner makes envelopes of a driver's values. A backlog spends its time here: payloads share
// chunks of memory, and repeated values (types, metadata) are kept once.
type scanner struct {
	envelopes []notification.Envelope
	bytes     int
	lastTwo   [2]int // sizes of the last two rows, in any order

	chunk    []byte // payloads, up to its capacity
	types    map[string]string
	metadata map[string]notification.Metadata
}

// chunkBytes is the maximum size of a chunk that payloads share.
const chunkBytes = 64 << 10

// envelopeBytes is roughly the size of an envelope without its texts.
const envelopeBytes = 200

// newScanner expects roughly that many rows, which will be released together; 0 if they may be
// released at different times, and must not share memory.
func newScanner(rows int) *scanner {
	return &scanner{
		envelopes: make([]notification.Envelope, 0, rows),
		types:     make(map[string]string),
		metadata:  make(map[string]notification.Metadata),
	}
}

// scan reads one row and returns the values after its columns.
func (s *scanner) scan(row []driver.Value) (rest *values, err error) {
	v := &values{left: row}
	e := notification.Envelope{
		Offset:  v.integer(),
		Slot:    int(v.integer()),
		ID:      v.text(),
		Type:    s.shareType(v.text()),
		Version: int(v.integer()),
		Key:     v.text(),
	}
	e.OccurredOn, e.DeliverAt = v.time(), v.time()
	metadata, payload := v.bytes(), v.bytes()
	if v.err != nil {
		return nil, v.err
	}
	if e.Metadata, err = s.shareMetadata(metadata); err != nil {
		return nil, fmt.Errorf("offset %d: metadata: %w", e.Offset, err)
	}
	e.Payload = s.keep(payload)
	size := len(e.Payload) + len(e.Key) + len(e.ID) + len(metadata) + envelopeBytes
	s.bytes += size
	s.lastTwo[len(s.envelopes)%2] = size
	s.envelopes = append(s.envelopes, e)
	return v, nil
}

// rowBytes estimates the size of the next rows: the average so far, or the smaller one of the last
// two if that is larger. There must be rows.
func (s *scanner) rowBytes() int {
	return max(s.bytes/len(s.envelopes), min(s.lastTwo[0], s.lastTwo[1]))
}

// last returns the envelope of the last row.
func (s *scanner) last() notification.Envelope { return s.envelopes[len(s.envelopes)-1] }

func (s *scanner) shareType(name string) string {
	if t, known := s.types[name]; known {
		return t
	}
	s.types[name] = name
	return name
}

// shareMetadata decodes the metadata column, once for all rows with the same value.
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

// keep copies a payload, since the driver reuses it. No copy can grow into the next one.
func (s *scanner) keep(payload []byte) []byte {
	if len(payload) > cap(s.chunk)-len(s.chunk) {
		// Room for the expected rows, if they are like this one.
		rows := max(1, cap(s.envelopes)-len(s.envelopes))
		s.chunk = make([]byte, 0, max(len(payload), min(chunkBytes, rows*len(payload))))
	}
	begin := len(s.chunk)
	s.chunk = append(s.chunk, payload...)
	return s.chunk[begin:len(s.chunk):len(s.chunk)]
}

// values reads a row's columns one after the other. It keeps the first error.
type values struct {
	left []driver.Value
	err  error
}

func (v *values) next() driver.Value {
	next := v.left[0]
	v.left = v.left[1:]
	return next
}

func (v *values) wrong(value driver.Value) {
	if v.err == nil {
		v.err = fmt.Errorf("the driver gives %T for a column: use lib/pq or pgx", value)
	}
}

func (v *values) integer() int64 {
	value := v.next()
	n, ok := value.(int64)
	if !ok {
		v.wrong(value)
	}
	return n
}

func (v *values) text() string {
	switch value := v.next().(type) {
	case string:
		return value
	case []byte:
		return string(value)
	default:
		v.wrong(value)
		return ""
	}
}

// bytes returns a slice that is valid until the next row.
func (v *values) bytes() []byte {
	switch value := v.next().(type) {
	case []byte:
		return value
	case string:
		return []byte(value)
	default:
		v.wrong(value)
		return nil
	}
}

// time returns zero for NULL.
func (v *values) time() time.Time {
	value := v.next()
	switch value := value.(type) {
	case nil:
		return time.Time{}
	case time.Time:
		return value.UTC()
	case []byte:
		if len(value) == 8 {
			return sentTime(binary.BigEndian.Uint64(value))
		}
	}
	v.wrong(value)
	return time.Time{}
}

// sentTime decodes the format of timestamptz_send: microseconds since the year 2000.
func sentTime(sent uint64) time.Time {
	return time.UnixMicro(int64(sent) + year2000.UnixMicro()).UTC()
}

var year2000 = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// nullTime returns t for a column that is null if there is no time.
func nullTime(t time.Time) sql.NullTime { return sql.NullTime{Time: t, Valid: !t.IsZero()} }
