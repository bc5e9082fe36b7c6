package tables

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

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

// WaitingLane is a lane and its cursor's position.
type WaitingLane struct {
	Lane     store.Lane
	Position json.RawMessage
}

// WaitingSpan is a range of the log with rows that lanes of one sink still have to read.
type WaitingSpan struct {
	// The rows are after the offset After, up to Last.
	After, Last int64
	// Count counts the first rows of a part of the range, in the order of their offsets, up to a
	// limit over all lanes. It calls found for each lane with its index among the requested ones,
	// and when the oldest of its rows occurred.
	Count func(ctx context.Context, after, last int64, limit int, found func(lane, rows int, oldest time.Time)) error
}

// waited is what a cursor still has to read.
type waited struct {
	rows   int
	oldest time.Time // when the oldest of the rows occurred
}

// waiting counts the pending rows of each sink, up to store.PendingLimit over all of its lanes,
// oldest first. It takes about store.CountTime: each sink has a share of that, and at least one
// statement. more are the sinks that may have more, because the limit was reached or time ran out.
func (t *Tables) waiting(ctx context.Context, cursors []cursor, q store.StatusQuery, target store.Target) (counted []waited, more map[string]bool, err error) {
	if t.source != nil {
		return t.waitingInSource(ctx, cursors, target)
	}
	counted, more = make([]waited, 0, len(cursors)), make(map[string]bool)
	oldest, err := t.run.Oldest(ctx, t.db, 0)
	if err != nil {
		return nil, nil, err
	}
	end := time.Now().Add(store.CountTime)
	bySink := slices.Collect(sinksOf(cursors))
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

// sinksOf returns the cursors of each sink. They are ordered by sink.
func sinksOf(cursors []cursor) func(yield func([]cursor) bool) {
	return func(yield func([]cursor) bool) {
		for first, i := 0, 0; i < len(cursors); i++ {
			if i+1 == len(cursors) || cursors[i+1].Sink != cursors[first].Sink {
				if !yield(cursors[first : i+1]) {
					return
				}
				first = i + 1
			}
		}
	}
}

// waitingFor counts for one sink, and reports whether it has counted everything.
func (t *Tables) waitingFor(ctx context.Context, cursors []cursor, found []waited, types notification.TypeFilter, target store.Target, oldest int64, until time.Time) (done bool, err error) {
	if types.None() {
		return true, nil
	}
	lanes, room := make([]WaitingLane, len(cursors)), store.PendingLimit
	for i := range cursors {
		lanes[i] = WaitingLane{cursors[i].lane, cursors[i].position}
		room += int(store.CountOffsets(cursors[i].ahead))
	}
	spans, err := t.dialect.Waiting(lanes, target, types)
	if err != nil {
		return false, err
	}
	slices.SortFunc(spans, func(a, b WaitingSpan) int { return cmp.Compare(a.After, b.After) })
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
func subtractSettled(cursors []cursor, found []waited) {
	for i := range found {
		if found[i].rows -= int(store.CountOffsets(cursors[i].ahead)); found[i].rows <= 0 {
			found[i] = waited{}
		}
	}
}
