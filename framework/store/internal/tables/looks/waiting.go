package looks

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store/internal/tables"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// How many offsets one statement counts in: few at first, so that few rows cost little, and then
// more, up to what takes some tens of milliseconds.
const (
	waitingFirst  = 5000
	waitingGrowth = 4
	waitingMost   = 80_000
)

// waited is what a cursor still has to read.
type waited struct {
	rows   int
	oldest time.Time // when the oldest of the rows occurred
}

// waiting counts the pending rows of each sink, up to store.PendingLimit over all of its lanes,
// oldest first. It takes about store.CountTime: each sink has a share of that, and at least one
// statement. more are the sinks that may have more, because the limit was reached or time ran out.
func (t *Looks) waiting(ctx context.Context, cursors []tables.Cursor, q store.SampleQuery, target store.Target) (counted []waited, more map[string]bool, err error) {
	if t.run.Source != nil {
		return t.waitingInSource(ctx, cursors, target)
	}
	counted, more = make([]waited, 0, len(cursors)), make(map[string]bool)
	oldest, err := t.run.Oldest(ctx, t.run.DB, 0)
	if err != nil {
		return nil, nil, err
	}
	end := time.Now().Add(store.CountTime)
	bySink := slices.Collect(tables.SinksOf(cursors))
	for i, lanes := range bySink {
		found := make([]waited, len(lanes))
		if oldest != nil {
			types, _ := q.TypesOf(lanes[0].Sink)
			until := time.Now().Add(time.Until(end) / time.Duration(len(bySink)-i))
			done, err := t.waitingFor(ctx, lanes, found, types, target, oldest.Offset, until)
			if err != nil {
				return nil, nil, err
			}
			more[lanes[0].Sink] = !done
		}
		counted = append(counted, found...)
	}
	return counted, more, nil
}

// waitingFor counts for one sink, and reports whether it has counted everything.
func (t *Looks) waitingFor(ctx context.Context, cursors []tables.Cursor, found []waited, types notification.TypeFilter, target store.Target, oldest int64, until time.Time) (done bool, err error) {
	if types.None() {
		return true, nil
	}
	lanes, room := make([]tables.WaitingLane, len(cursors)), store.PendingLimit
	for i := range cursors {
		lanes[i] = tables.WaitingLane{Lane: cursors[i].StoreLane, Position: cursors[i].Position}
		room += int(store.CountOffsets(cursors[i].Ahead))
	}
	spans, err := t.run.Dialect.Waiting(lanes, target, types)
	if err != nil {
		return false, err
	}
	slices.SortFunc(spans, func(a, b tables.WaitingSpan) int { return cmp.Compare(a.After, b.After) })
	defer subtractSettled(cursors, found)
	begun := false
	for _, span := range spans {
		size := int64(waitingFirst)
		for after := max(span.After, oldest-1); after < span.Last && room > 0; {
			if begun && time.Now().After(until) {
				return false, nil
			}
			begun = true
			last := min(after+size, span.Last)
			err := span.Count(ctx, after, last, room, func(lane, rows int, oldest time.Time) {
				w := &found[lane]
				if w.rows == 0 || oldest.Before(w.oldest) {
					w.oldest = oldest
				}
				w.rows, room = w.rows+rows, room-rows
			})
			if err != nil {
				return false, err
			}
			after, size = last, min(size*waitingGrowth, waitingMost)
		}
	}
	return room > 0, nil
}

// subtractSettled subtracts what is settled after the positions.
func subtractSettled(cursors []tables.Cursor, found []waited) {
	for i := range found {
		if found[i].rows -= int(store.CountOffsets(cursors[i].Ahead)); found[i].rows <= 0 {
			found[i] = waited{}
		}
	}
}

// waitingInSource is waiting for a source: it counts offsets, not rows of some types.
func (t *Looks) waitingInSource(ctx context.Context, cursors []tables.Cursor, target store.Target) ([]waited, map[string]bool, error) {
	lanes := make([]store.LanePosition, len(cursors))
	for i := range cursors {
		lanes[i] = tables.LanePosition(&cursors[i])
	}
	waiting, err := t.run.Source.Waiting(ctx, lanes, target)
	if err != nil {
		return nil, nil, err
	}
	counted, more, total := make([]waited, len(cursors)), make(map[string]bool), make(map[string]int64)
	for i, w := range waiting {
		rows := max(0, w.Rows-store.CountOffsets(cursors[i].Ahead))
		sink := cursors[i].Sink
		total[sink] += rows
		more[sink] = total[sink] > store.PendingLimit
		counted[i] = waited{int(min(rows, store.PendingLimit)), w.Oldest}
		if w.Oldest.IsZero() {
			counted[i].oldest = time.Now()
		}
	}
	return counted, more, nil
}
