package postgres

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// columns are those of an envelope, in the order in which scanner reads them.
const columns = `"offset", slot, id, type, version, key, occurred_on, deliver_at, metadata, payload`

// scanner turns rows into the envelopes of one page. What repeats from row to
// row (types, metadata) is kept once and shared.
type scanner struct {
	envelopes []notification.Envelope
	bytes     int

	types    map[string]string
	metadata map[string]notification.Metadata
}

func newScanner(limit int) *scanner {
	return &scanner{
		envelopes: make([]notification.Envelope, 0, min(limit, 1024)),
		types:     make(map[string]string),
		metadata:  make(map[string]notification.Metadata),
	}
}

// scan reads one row, whose further columns go to extra.
func (s *scanner) scan(rows *sql.Rows, extra ...any) error {
	var (
		e         notification.Envelope
		typ, meta sql.RawBytes
		deliverAt sql.NullTime
	)
	dest := append([]any{&e.Offset, &e.Slot, &e.ID, &typ, &e.Version, &e.Key, &e.OccurredOn, &deliverAt, &meta, &e.Payload}, extra...)
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	e.Type = s.intern(typ)
	e.OccurredOn = e.OccurredOn.UTC()
	if deliverAt.Valid {
		e.DeliverAt = deliverAt.Time.UTC()
	}
	var err error
	if e.Metadata, err = s.decodeMetadata(meta); err != nil {
		return fmt.Errorf("offset %d: metadata: %w", e.Offset, err)
	}
	s.bytes += len(e.Payload) + len(e.Key) + len(e.ID) + len(meta) + envelopeBytes
	s.envelopes = append(s.envelopes, e)
	return nil
}

// envelopeBytes is about what an envelope takes beside its texts.
const envelopeBytes = 200

func (s *scanner) intern(raw []byte) string {
	if t, known := s.types[string(raw)]; known {
		return t
	}
	t := string(raw)
	s.types[t] = t
	return t
}

// decodeMetadata reads the metadata column, once for all rows that have the same.
func (s *scanner) decodeMetadata(raw []byte) (notification.Metadata, error) {
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

// nullTime is t for a column that is null where there is no time.
func nullTime(t time.Time) sql.NullTime { return sql.NullTime{Time: t, Valid: !t.IsZero()} }
