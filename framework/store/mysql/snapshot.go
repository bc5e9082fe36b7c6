package mysql

import (
	"slices"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql/internal/spans"
)

// snapshot is a set of decided offsets: all offsets up to top except the holes. A decided offset has a
// committed row, or will never have one. So a snapshot has the same rows for every reader at any time,
// like a snapshot of transactions.
//
// The zero value has no decided offsets. top is the offset of a committed row, never one that was only
// handed out: after a failover another server would hand that out again.
type snapshot struct {
	top   int64
	holes spans.Set
}

// open returns the undecided offsets up to an offset.
func (s snapshot) open(upTo int64) spans.Set {
	if upTo <= s.top {
		return s.holes
	}
	return slices.Clone(s.holes).Add(s.top+1, upTo)
}

// join returns the union of two snapshots.
func join(a, b snapshot) snapshot {
	if len(a.holes) == 0 && a.top >= b.top {
		return a
	}
	top := max(a.top, b.top)
	return snapshot{top, a.open(top).And(b.open(top))}
}

func (s snapshot) equal(t snapshot) bool { return s.top == t.top && slices.Equal(s.holes, t.holes) }

// delta returns the offsets that are decided in until and not in from.
func delta(from, until snapshot) spans.Set { return from.open(until.top).Minus(until.holes) }

// through returns an offset up to which all offsets are decided.
func (s snapshot) through() int64 {
	if len(s.holes) > 0 {
		return s.holes[0].First - 1
	}
	return s.top
}

// storedSnapshot is the JSON of a snapshot in a position.
type storedSnapshot struct {
	Top   int64  `json:"top"`
	Holes string `json:"holes,omitempty"` // in the form of store.EncodeOffsets
}

func (s snapshot) stored() *storedSnapshot {
	return &storedSnapshot{s.top, store.EncodeOffsets(s.holes)}
}

func (s *storedSnapshot) parse() (snapshot, error) {
	holes, err := store.DecodeOffsets(s.Holes)
	if err == nil && (s.Top < 0 || len(holes) > 0 && holes[len(holes)-1].Last > s.Top) {
		err = store.ErrPosition
	}
	return snapshot{s.Top, holes}, err
}
