package postgres

import (
	"encoding/json"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// base is a place in the log between two deltas: every row whose transaction had ended in Snapshot
// is settled.
//
// Bound and Floors say where the rows of other transactions can be, so that the reader need not
// search the whole log for late rows.
type base struct {
	Snapshot snapshot `json:"snapshot"`
	// Bound: transactions with an id >= Snapshot.xmax take only offsets > Bound.
	Bound int64 `json:"bound"`
	// Floors: a transaction that was running in Snapshot has only offsets > its floor.
	Floors map[xid]int64 `json:"floors,omitempty"`
	// Last: the last offset of the sequence when Snapshot was taken. It never decreases.
	Last int64 `json:"last,omitempty"`
	// Reach: rows may have offsets up to here, although the sequence is lower. It is usually 0,
	// which means that the sequence was never set back.
	Reach int64 `json:"reach,omitempty"`
}

// origin is the place before the oldest row: transaction ids begin at 3, so nothing had ended and
// nothing was running.
var origin = base{Snapshot: snapshot{xmin: 1, xmax: 1, text: "1:1:"}}

// late returns the transactions that were running in b's snapshot and had ended in a later one, and an
// offset that is below all of their rows. It leaves out those that took no offset up to last.
func (b *base) late(until *snapshot, last int64) (ended []xid, floor int64) {
	floor = last
	for _, x := range b.Snapshot.running {
		if f := b.Floors[x]; f < last && until.ended(x) {
			ended = append(ended, x)
			floor = min(floor, f)
		}
	}
	return ended, floor
}

// last returns the highest offset that a row visible in t can have.
func (b *base) last(t *probe) int64 { return max(t.last, b.Reach) }

// next returns the base after everything up to t is settled. The watermark of t tightens the
// bounds: every transaction with a higher id than the watermark's took its offsets after the
// watermark's bound was read, and the watermark had ended before t. The floors of t do the same
// for the transactions that they name.
func (b *base) next(t *probe) base {
	n := base{Snapshot: t.snapshot, Bound: max(b.Bound, t.watermark.bound), Last: t.last}
	if b.Reach > t.last {
		n.Reach = b.Reach
	}
	if len(t.snapshot.running) > 0 {
		n.Floors = make(map[xid]int64, len(t.snapshot.running))
	}
	for _, x := range t.snapshot.running {
		floor := b.Bound
		if f, known := b.Floors[x]; known {
			floor = f
		}
		if x > t.watermark.id {
			floor = max(floor, t.watermark.bound)
		}
		n.Floors[x] = max(floor, t.floors[x])
	}
	return n
}

// settled returns an offset up to which every row is settled, whatever its transaction id, and up
// to which no running transaction has taken an offset.
func (b *base) settled() int64 {
	through := b.Bound
	for _, x := range b.Snapshot.running {
		through = min(through, b.Floors[x])
	}
	return through
}

// delta is the set of rows between a base and a target: those whose transaction ended after From's
// snapshot and before Until's. They are read in the order of their offsets.
type delta struct {
	From  base  `json:"from"`
	Until base  `json:"until"` // the base after the delta is settled
	Last  int64 `json:"last"`  // no row of the delta has a higher offset
	// Restored: rows up to here belong to the delta whatever their transaction ids are, since
	// these come from another cluster. It is usually 0.
	Restored int64 `json:"restored,omitempty"`
}

// position is a place in the log: at a base, or inside a delta after an offset.
type position struct {
	history history
	base    *base
	delta   *delta
	offset  int64
}

// goal returns the base that the position is at or leads to.
func (p *position) goal() *base {
	if p.delta != nil {
		return &p.delta.Until
	}
	return p.base
}

// settled returns an offset up to which every row is settled: [base.settled], except that rows of a
// delta after the position are not.
func (p *position) settled() int64 {
	if p.delta == nil {
		return p.base.settled()
	}
	return min(p.offset, p.delta.Until.settled())
}

// settles reports whether a committed row is settled: its transaction had ended in the snapshot of
// the base, or the row was passed in the delta. This applies in the position's own log; see
// conflict. The bounds add rows whose transaction ids mean nothing here. settledSQL is the same as
// SQL.
func (p *position) settles(offset int64, id xid) bool {
	switch {
	case offset <= p.settled():
		return true
	case p.delta == nil:
		return p.base.Snapshot.ended(id)
	}
	d := p.delta
	return d.From.Snapshot.ended(id) || offset <= p.offset && (offset <= d.Restored || d.Until.Snapshot.ended(id))
}

// conflict says why the position cannot be before t, so that it belongs to another log; "" if it can.
// durable is the last offset of the sequence that a stored cursor knows.
func (p *position) conflict(t *probe, durable int64) string {
	b := p.goal()
	last := max(b.Bound, durable)
	reason := p.history.differs(t.history)
	switch {
	case reason != "":
		return reason
	case !t.snapshot.includes(&b.Snapshot):
		return fmt.Sprintf("the cursor knows transactions up to %d and this cluster is at %d: the database was restored into another cluster",
			b.Snapshot.xmax, t.snapshot.xmax)
	case t.last < last:
		return fmt.Sprintf("the cursor is past offset %d and the sequence stands at %d: the log was truncated", last, t.last)
	}
	return ""
}

// isNew reports whether the position is before the oldest row.
func (p *position) isNew() bool {
	return p.delta == nil && p.base.Snapshot.text == origin.Snapshot.text
}

// MarshalJSON encodes the position for parsePosition.
func (p position) MarshalJSON() ([]byte, error) {
	stored := storedPosition{At: p.base, Delta: p.delta, Offset: p.offset}
	if p.history != (history{}) {
		stored.History = &p.history
	}
	return json.Marshal(stored)
}

// storedPosition is the content of the column outbox_cursors.position.
type storedPosition struct {
	History *history `json:"history,omitempty"`
	At      *base    `json:"at,omitempty"`
	Delta   *delta   `json:"delta,omitempty"`
	Offset  int64    `json:"offset,omitempty"`
}

func parsePosition(raw json.RawMessage) (position, error) {
	if len(raw) == 0 {
		return position{base: &origin}, nil
	}
	var s storedPosition
	if err := json.Unmarshal(raw, &s); err != nil {
		return position{}, fmt.Errorf("%w: %w", store.ErrPosition, err)
	}
	if (s.At == nil) == (s.Delta == nil) {
		return position{}, fmt.Errorf("%w: %s", store.ErrPosition, raw)
	}
	p := position{base: s.At, delta: s.Delta, offset: s.Offset}
	if s.History != nil {
		p.history = *s.History
	}
	return p, nil
}
