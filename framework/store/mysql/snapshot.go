package mysql

import (
	"slices"

	"github.com/waybill-go/waybill/framework/store"
)

// snapshot is a set of decided offsets: every one up to top that is not among the holes. A
// decided offset has a committed row, or will never have one. It does the work of a snapshot of
// transactions: what it has does not depend on who reads it, or when.
//
// The zero value has decided nothing. top is the offset of a row that was committed, and never
// one that was only handed out: a server that takes over would hand that out again.
type snapshot struct {
	top   int64
	holes spans
}

// open are the offsets up to a place that are not decided.
func (s snapshot) open(upTo int64) spans {
	if upTo <= s.top {
		return s.holes
	}
	return slices.Clone(s.holes).add(s.top+1, upTo)
}

// join has decided what either has.
func join(a, b snapshot) snapshot {
	if len(a.holes) == 0 && a.top >= b.top {
		return a
	}
	top := max(a.top, b.top)
	return snapshot{top, a.open(top).and(b.open(top))}
}

func (s snapshot) equal(t snapshot) bool { return s.top == t.top && slices.Equal(s.holes, t.holes) }

// delta are the offsets that until has decided and from has not.
func delta(from, until snapshot) spans { return from.open(until.top).minus(until.holes) }

// through is an offset up to which all are decided.
func (s snapshot) through() int64 {
	if len(s.holes) > 0 {
		return s.holes[0].First - 1
	}
	return s.top
}

// storedSnapshot is a snapshot in a position.
type storedSnapshot struct {
	Top   int64  `json:"top"`
	Holes string `json:"holes,omitempty"` // as store.EncodeOffsets writes them
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
