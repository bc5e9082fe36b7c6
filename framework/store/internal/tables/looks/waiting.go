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

// waited is what a cursor still has to read.
type waited struct {
	rows   int
	oldest time.Time // when the oldest of the rows occurred
}

func (w *waited) add(rows int, oldest time.Time) {
	if w.oldest.IsZero() || oldest.Before(w.oldest) {
		w.oldest = oldest
	}
	w.rows += rows
}

// waiting counts the pending rows of each sink, exactly up to store.PendingLimit over all of its lanes,
// oldest first, and estimates how many more there are. Counting takes about store.CountTime: each sink has a
// share of that, and at least one statement. estimated are the sinks that may have more
// than was counted, because the limit was reached or time ran out.
func (t *Looks) waiting(ctx context.Context, cursors []tables.Cursor, q store.SampleQuery, target store.Target) (counted []waited, estimated map[string]bool, err error) {
	if t.run.Source != nil {
		counted, err = t.waitingInSource(ctx, cursors, target)
		return counted, nil, err
	}
	counted, estimated = make([]waited, 0, len(cursors)), make(map[string]bool)
	oldest, err := t.run.Oldest(ctx, t.run.DB, 0)
	if err != nil {
		return nil, nil, err
	}
	end := time.Now().Add(store.CountTime)
	bySink := slices.Collect(tables.SinksOf(cursors))
	for i, lanes := range bySink {
		found := make([]waited, len(lanes))
		if oldest != nil {
			types, _ := typesOf(&lanes[0], q)
			share := time.Until(end) / time.Duration(len(bySink)-i)
			left, err := t.waitingFor(ctx, lanes, found, types, target, oldest.Offset, share)
			if err != nil {
				return nil, nil, err
			}
			estimated[lanes[0].Sink] = left
		}
		counted = append(counted, found...)
	}
	return counted, estimated, nil
}

// waitingFor counts for one sink, and reports whether it has left anything to an estimate.
func (t *Looks) waitingFor(ctx context.Context, cursors []tables.Cursor, found []waited, types notification.TypeFilter, target store.Target, oldest int64, share time.Duration) (left bool, err error) {
	if types.None() {
		return false, nil
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
	defer subtractSettled(cursors, found)
	slices.SortFunc(spans, func(a, b tables.WaitingSpan) int { return cmp.Compare(a.After, b.After) })
	c := counter{until: time.Now().Add(share), room: room, found: found}
	for _, span := range spans {
		if err := c.count(ctx, span, oldest); err != nil {
			return false, err
		}
	}
	return len(c.rests) > 0, c.estimate(ctx)
}

// subtractSettled subtracts what is settled after the positions.
func subtractSettled(cursors []tables.Cursor, found []waited) {
	for i := range found {
		if found[i].rows -= int(store.CountOffsets(cursors[i].Ahead)); found[i].rows <= 0 {
			found[i] = waited{}
		}
	}
}

// waitingInSource is waiting for a source: it subtracts offsets, and counts no rows of some types.
func (t *Looks) waitingInSource(ctx context.Context, cursors []tables.Cursor, target store.Target) ([]waited, error) {
	lanes := make([]store.LanePosition, len(cursors))
	for i := range cursors {
		lanes[i] = tables.LanePosition(&cursors[i])
	}
	waiting, err := t.run.Source.Waiting(ctx, lanes, target)
	if err != nil {
		return nil, err
	}
	counted := make([]waited, len(cursors))
	for i, w := range waiting {
		counted[i] = waited{int(max(0, w.Rows-store.CountOffsets(cursors[i].Ahead))), w.Oldest}
		if w.Oldest.IsZero() {
			counted[i].oldest = time.Now()
		}
	}
	return counted, nil
}
