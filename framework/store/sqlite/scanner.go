package sqlite

import (
	"database/sql"
	"fmt"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

const (
	// pageBytes is where a page ends even if it has not reached its limit, so
	// that large payloads do not add up to gigabytes.
	pageBytes = 8 << 20
	// envelopeBytes is about what an envelope takes beside its texts.
	envelopeBytes = 200
)

// columns are those of an envelope, in the order in which scanner reads them.
const columns = `"offset", slot, id, type, version, key, occurred_on, deliver_at, metadata, payload`

// scanner turns rows into envelopes. Rows with the same metadata text share one
// decoded map.
type scanner struct {
	bytes    int // what was scanned takes about this much memory
	metadata map[string]notification.Metadata
}

// full says that a page should end here.
func (s *scanner) full() bool { return s.bytes >= pageBytes }

// scan reads one row, whose further columns go to extra.
func (s *scanner) scan(rows *sql.Rows, extra ...any) (notification.Envelope, error) {
	var (
		e                    notification.Envelope
		occurredOn, metadata string
		deliverAt            sql.NullString
	)
	dest := append([]any{&e.Offset, &e.Slot, &e.ID, &e.Type, &e.Version, &e.Key, &occurredOn, &deliverAt, &metadata, &e.Payload}, extra...)
	if err := rows.Scan(dest...); err != nil {
		return e, err
	}
	var err error
	if e.OccurredOn, err = parseTime(occurredOn); err != nil {
		return e, fmt.Errorf("offset %d: occurred_on: %w", e.Offset, err)
	}
	if e.DeliverAt, err = parseNullTime(deliverAt); err != nil {
		return e, fmt.Errorf("offset %d: deliver_at: %w", e.Offset, err)
	}
	if e.Metadata, err = s.decodeMetadata(metadata); err != nil {
		return e, fmt.Errorf("offset %d: metadata: %w", e.Offset, err)
	}
	if e.Payload == nil {
		e.Payload = []byte{} // how the driver hands over an empty one
	}
	s.bytes += len(e.Payload) + len(e.Key) + len(e.ID) + len(metadata) + envelopeBytes
	return e, nil
}

func (s *scanner) decodeMetadata(text string) (notification.Metadata, error) {
	if m, known := s.metadata[text]; known {
		return m, nil
	}
	m, err := store.DecodeMetadata([]byte(text))
	if err != nil {
		return nil, err
	}
	if s.metadata == nil {
		s.metadata = make(map[string]notification.Metadata)
	}
	s.metadata[text] = m
	return m, nil
}
