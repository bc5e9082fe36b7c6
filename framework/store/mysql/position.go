package mysql

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/spans"
)

// position is a place in the log: at a snapshot, or, with until, within the delta between two
// snapshots, after an offset. A delta is read in the order of the offsets.
type position struct {
	from   snapshot
	until  *snapshot
	offset int64
}

// goal returns the snapshot at which the position is, or to which its delta leads.
func (p position) goal() snapshot {
	if p.until != nil {
		return *p.until
	}
	return p.from
}

// through returns an offset up to which every row is settled.
func (p position) through() int64 {
	if p.until == nil {
		return p.from.through()
	}
	if rest := delta(p.from, *p.until).Behind(p.offset); len(rest) > 0 {
		return min(p.until.through(), rest[0].First-1)
	}
	return p.until.through()
}

// unsettled returns the offsets up to the goal's top that are not settled.
func (p position) unsettled() spans.Set {
	if p.until == nil {
		return p.from.holes
	}
	return p.until.holes.Or(delta(p.from, *p.until).Behind(p.offset))
}

// maxUnsettled limits the condition on rows after through. If it would be longer, all rows after through
// count as not settled for now.
const maxUnsettled = 1000

// settled returns the condition that a row after through is settled.
func (p position) settled() tables.Expr {
	top := p.goal().top
	unsettled := p.unsettled()
	if top <= p.through() || len(unsettled) > maxUnsettled {
		return tables.SQL(`false`)
	}
	if len(unsettled) == 0 {
		return tables.SQL("`offset` <= ?", top)
	}
	return tables.SQL("(`offset` <= ? AND NOT "+unsettled.Where()+")", top)
}

// storedPosition is the JSON in the column outbox_cursors.position: {"at":…} or {"delta":…,"offset":…}.
type storedPosition struct {
	At     *storedSnapshot `json:"at,omitempty"`
	Delta  *storedDelta    `json:"delta,omitempty"`
	Offset int64           `json:"offset,omitempty"`
}

type storedDelta struct {
	From  *storedSnapshot `json:"from"`
	Until *storedSnapshot `json:"until"`
}

// MarshalJSON writes the form that parsePosition reads.
func (p position) MarshalJSON() ([]byte, error) {
	if p.until == nil {
		return json.Marshal(storedPosition{At: p.from.stored()})
	}
	return json.Marshal(storedPosition{Delta: &storedDelta{p.from.stored(), p.until.stored()}, Offset: p.offset})
}

// parsePosition is strict, so that the position of another dialect is not taken for the beginning of the
// log. Without a text, the position is before the oldest row.
func parsePosition(raw json.RawMessage) (position, error) {
	if len(raw) == 0 {
		return position{}, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	var s storedPosition
	if err := decoder.Decode(&s); err != nil {
		return position{}, fmt.Errorf("%w: %.100q: %w", store.ErrPosition, raw, err)
	}
	p, err := s.parse()
	if err != nil || decoder.More() {
		return position{}, fmt.Errorf("%w: %.100q", store.ErrPosition, raw)
	}
	return p, nil
}

func (s *storedPosition) parse() (p position, err error) {
	switch {
	case s.At != nil && s.Delta == nil && s.Offset == 0:
		p.from, err = s.At.parse()
		return p, err
	case s.At == nil && s.Delta != nil && s.Delta.From != nil && s.Delta.Until != nil && s.Offset >= 0:
		if p.from, err = s.Delta.From.parse(); err != nil {
			return p, err
		}
		until, err := s.Delta.Until.parse()
		p.until, p.offset = &until, s.Offset
		return p, err
	}
	return p, store.ErrPosition
}
