package postgres

import (
	"encoding/json"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// base is a place in the log between two deltas: every row whose transaction had
// ended in Snapshot is settled.
//
// Bound and Floors say where the rows of the others can be. They save the
// reader from looking through the whole log for late ones.
type base struct {
	Snapshot snapshot `json:"snapshot"`
	// Bound: transactions with an id >= Snapshot.xmax take offsets > Bound only.
	Bound int64 `json:"bound"`
	// Floors: a transaction that was running in Snapshot has offsets > its floor.
	Floors map[xid]int64 `json:"floors,omitempty"`
	// Last: the sequence stood here when Snapshot was taken. It never goes back.
	Last int64 `json:"last,omitempty"`
	// Reach: rows may have offsets up to here, though the sequence is not there
	// yet. 0 is the usual case, in which it never went back.
	Reach int64 `json:"reach,omitempty"`
}

// origin is the place before the oldest row: transaction ids begin at 3, so
// nothing had ended and nothing was running.
var origin = base{Snapshot: snapshot{xmin: 1, xmax: 1, text: "1:1:"}}

// late returns the transactions that were running in b's snapshot and ended
// before t, with the lowest offset that any of their rows can follow.
// Those that cannot have taken an offset up to t are left out.
func (b *base) late(t *probe) (ended []xid, floor int64) {
	floor = b.last(t)
	for _, x := range b.Snapshot.running {
		if f := b.Floors[x]; f < b.last(t) && t.snapshot.ended(x) {
			ended = append(ended, x)
			floor = min(floor, f)
		}
	}
	return ended, floor
}

// last is the highest offset that a row can have that is visible in t.
func (b *base) last(t *probe) int64 { return max(t.last, b.Reach) }

// next is the base once everything up to t is settled. The watermark of t tightens
// the bounds: every transaction with a higher id than the watermark's took its
// offsets after the watermark's bound was read, and the watermark had ended before t. The
// floors of t do the same for the transactions that they name.
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

// settled is an offset up to which every row is settled, whatever its transaction
// id, and below which no transaction that is still running has taken one.
func (b *base) settled() int64 {
	through := b.Bound
	for _, x := range b.Snapshot.running {
		through = min(through, b.Floors[x])
	}
	return through
}

// delta is the set of rows between a base and a target: those whose transaction
// ended after From's snapshot was taken and before Until's. They are read in
// the order of their offsets.
type delta struct {
	From  base  `json:"from"`
	Until base  `json:"until"` // the base once the delta is settled
	Last  int64 `json:"last"`  // no row of the delta has a higher offset
	// Restored: rows up to here belong to the delta whatever their transaction
	// ids, which are of another cluster. 0 is the usual case.
	Restored int64 `json:"restored,omitempty"`
}

// position is a place in the log: at a base, or inside a delta behind an offset.
type position struct {
	history history
	base    *base
	delta   *delta
	offset  int64
}

// goal is the base that the position is at or leads to.
func (p *position) goal() *base {
	if p.delta != nil {
		return &p.delta.Until
	}
	return p.base
}

// settled is an offset up to which every row is settled: [base.settled], of which
// a delta's rows behind the position are an exception.
func (p *position) settled() int64 {
	if p.delta == nil {
		return p.base.settled()
	}
	return min(p.offset, p.delta.Until.settled())
}

// settles says whether a committed row is settled: in a log that is the
// position's, see reader.conflict, its transaction had ended in the snapshot of
// the base, or it was passed in the delta. The bounds add those whose transaction
// ids mean nothing here. settledSQL says the same.
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

// isNew says whether the position is before the oldest row.
func (p *position) isNew() bool {
	return p.delta == nil && p.base.Snapshot.text == origin.Snapshot.text
}

// MarshalJSON writes the form that parsePosition reads.
func (p position) MarshalJSON() ([]byte, error) {
	stored := storedPosition{At: p.base, Delta: p.delta, Offset: p.offset}
	if p.history != (history{}) {
		stored.History = &p.history
	}
	return json.Marshal(stored)
}

// storedPosition is what stands in the column outbox_cursors.position.
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
