package tables

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Scanner turns rows of database/sql into envelopes. Rows with the same metadata
// text share one decoded map.
type Scanner struct {
	dialect  Dialect
	bytes    int // what was scanned takes about this much memory
	metadata map[string]notification.Metadata
}

// NewScanner returns a Scanner for the rows of one page.
func NewScanner(d Dialect) *Scanner {
	return &Scanner{dialect: d, metadata: make(map[string]notification.Metadata)}
}

// Full reports whether a page should end here.
func (s *Scanner) Full() bool { return s.bytes >= PageBytes }

// Scan reads one row of Selected, whose further columns go to extra.
func (s *Scanner) Scan(rows *sql.Rows, extra ...any) (e notification.Envelope, err error) {
	var metadata string
	err = rows.Scan(append([]any{&e.Offset, &e.Slot, &e.ID, &e.Type, &e.Version, &e.Key, Into(s.dialect, &e.OccurredOn), Into(s.dialect, &e.DeliverAt), &metadata, &e.Payload}, extra...)...)
	if err != nil {
		return e, fmt.Errorf("offset %d: %w", e.Offset, err)
	}
	e.Metadata = s.decode(metadata)
	if e.Payload == nil {
		e.Payload = []byte{} // how a driver may hand over an empty one
	}
	s.bytes += len(e.Payload) + len(e.Key) + len(e.ID) + len(metadata) + rowBytes
	return e, nil
}

func (s *Scanner) decode(text string) notification.Metadata {
	if m, known := s.metadata[text]; known {
		return m
	}
	m := store.DecodeMetadata([]byte(text))
	s.metadata[text] = m
	return m
}

// EachParked is Dialect.EachParked through database/sql.
func EachParked(ctx context.Context, db *sql.DB, d Dialect, query string, args []any, each func(*store.ParkedDelivery) (bool, error)) (err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer CloseRows(rows, &err)
	envelopes := NewScanner(d)
	for more := true; more && rows.Next(); {
		p := &store.ParkedDelivery{}
		var attempts string
		if p.Envelope, err = envelopes.Scan(rows, &p.State, &p.Attempt, Into(d, &p.DueAt), &p.LastError, &attempts, &p.Receipt, &p.HookError, &p.HookFailures, Into(d, &p.FirstParkedAt), &p.Group, &p.Collection, &p.Sink, Into(d, &p.UpdatedAt)); err != nil {
			return err
		}
		p.Attempts = store.DecodePastAttempts(attempts)
		if more, err = each(p); err != nil {
			return err
		}
	}
	return rows.Err()
}
