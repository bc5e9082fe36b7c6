package tables

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// This file has what differs if the log is a source.

// CheckSource returns store.ErrOtherLog if there is a source and the database's own log has rows,
// which would never be read. A dialect calls it when the store is open.
func (t *Tables) CheckSource(ctx context.Context) error {
	if t.source == nil {
		return nil
	}
	oldest, err := t.run.Oldest(ctx, t.db, 0)
	if err == nil && oldest != nil {
		err = fmt.Errorf("%w: the outbox has rows, which are not read if the log is %s: use a separate prefix for the tables of a source", store.ErrOtherLog, t.source.Name())
	}
	return err
}

func (t *Tables) probe(ctx context.Context) (store.Target, error) {
	if t.source != nil {
		return t.source.Probe(ctx)
	}
	return t.dialect.Probe(ctx)
}

// grow creates the cursors that a sink lacks. If several processes do so at once, only one of them
// creates the first cursor, and then the others; the rest of the processes start over.
func (t *Tables) grow(ctx context.Context, sink string, start store.Start, created *store.Created) (done bool, err error) {
	cursors, err := t.cursors(ctx, t.own(), sink)
	if err != nil {
		return false, err
	}
	known := make([]json.RawMessage, len(cursors))
	for i := range cursors {
		if known[i] = cursors[i].position; cursors[i].lane.Of != store.Slots {
			return false, fmt.Errorf("%w: they do not belong to %s: use a separate prefix for the tables of a source", store.ErrOtherLog, t.source.Name())
		}
	}
	if start == "" {
		if start, err = t.defaultStart(ctx); err != nil {
			return false, err
		}
	}
	begin, err := t.source.Begin(ctx, known, start)
	if err != nil || len(begin) == 0 {
		return err == nil, err
	}
	var paused bool
	var types, wanted sql.NullString
	if len(cursors) > 0 {
		like := &cursors[0]
		paused, types, wanted = like.Paused, encodeTypes(like.types), encodeTypes(like.wanted)
	}
	free := freeLanes(cursors)
	err = t.inTx(ctx, func(tx *sql.Tx) error {
		for _, b := range begin {
			made, err := t.run.Exec(ctx, tx, `INSERT INTO {cursors} (sink, lane, lanes, position, paused, types, types_wanted) VALUES (?, ?, ?, ?, ?, ?, ?)`+
				t.dialect.OnConflict([]string{"sink", "lane"}, nil, Condition{}), sink, free(), store.Slots, string(b.Position), paused, types, wanted)
			if err != nil || made == 0 {
				return err
			}
			created.Passed = int(min(int64(created.Passed)+b.Passed, store.PendingLimit))
		}
		done = true
		return nil
	})
	if err != nil || !done {
		return false, err
	}
	created.Lanes, created.Start, created.Grown = len(begin), start, len(known) > 0
	return true, nil
}

// freeLanes returns the numbers that the lanes of a sink do not have yet, one with each call.
func freeLanes(cursors []cursor) (next func() int) {
	taken := make(map[int]bool, len(cursors))
	for i := range cursors {
		taken[cursors[i].Lane] = true
	}
	number := -1
	return func() int {
		for number++; taken[number]; number++ {
		}
		return number
	}
}

// sourceFaults returns, by sink, why cursors do not belong to the source.
func (t *Tables) sourceFaults(ctx context.Context) (map[string]string, error) {
	cursors, err := t.cursors(ctx, t.db, "")
	if err != nil {
		return nil, err
	}
	faults := make(map[string]string)
	for lanes := range sinksOf(cursors) {
		known := make([]json.RawMessage, len(lanes))
		for i := range lanes {
			known[i] = lanes[i].position
		}
		if _, err := t.source.Begin(ctx, known, store.StartNow); err != nil {
			faults[lanes[0].Sink] = err.Error()
		}
	}
	return faults, nil
}

func lanePosition(c *cursor) store.LanePosition {
	return store.LanePosition{Lane: c.lane, Position: c.position}
}

// placeInSource is placed for a source, whose positions alone say which rows are settled.
func (t *Tables) placeInSource(cursors []cursor) error {
	for i := range cursors {
		through, err := t.source.Through(lanePosition(&cursors[i]))
		if err != nil {
			return err
		}
		cursors[i].place = Place{Through: through}
	}
	return nil
}

// waitingInSource is waiting for a source: it counts offsets, not rows of some types.
func (t *Tables) waitingInSource(ctx context.Context, cursors []cursor, target store.Target) ([]waited, map[string]bool, error) {
	lanes := make([]store.LanePosition, len(cursors))
	for i := range cursors {
		lanes[i] = lanePosition(&cursors[i])
	}
	waiting, err := t.source.Waiting(ctx, lanes, target)
	if err != nil {
		return nil, nil, err
	}
	counted, more, total := make([]waited, len(cursors)), make(map[string]bool), make(map[string]int64)
	for i, w := range waiting {
		rows := max(0, w.Rows-store.CountOffsets(cursors[i].ahead))
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

// extent adds how large the log is.
func (t *Tables) extent(ctx context.Context, sample *store.Sample) (err error) {
	if t.source == nil {
		if sample.Oldest, err = t.run.Oldest(ctx, t.db, 0); err == nil {
			sample.LogBytes, sample.Held, err = t.dialect.Extent(ctx)
		}
		return err
	}
	e, err := t.source.Extent(ctx)
	sample.LogBytes, sample.Source, sample.Keeps = e.Bytes, t.source.Name(), e.Keeps
	if !e.Oldest.IsZero() {
		sample.Oldest = &store.Row{OccurredOn: e.Oldest}
		if e.Whole {
			sample.Oldest.Offset = 1
		}
	}
	return err
}

// back says where a sink's lanes go back to.
type back struct {
	lanes map[int]json.RawMessage // new positions of the lanes that move, by number
	rows  int64                   // how many rows are read again
}

// goBack finds where a replay begins. The lanes go back to it, and everything after it is delivered
// again.
func (t *Tables) goBack(ctx context.Context, r store.ReplayQuery) (b back, err error) {
	if !r.Until.IsZero() || len(r.Types) > 1 && !r.Types[1].All() {
		return b, fmt.Errorf("%w: a replay from %s delivers everything after its beginning: leave out type and until", store.ErrUnsupported, t.source.Name())
	}
	cursors, err := t.cursors(ctx, t.db, r.Sink)
	if err == nil && len(cursors) == 0 {
		err = t.unknownSink(ctx, t.db, r.Sink)
	}
	if err != nil {
		return b, err
	}
	b.lanes = make(map[int]json.RawMessage)
	for i := range cursors {
		at, rows, err := t.source.At(ctx, lanePosition(&cursors[i]), r.Since, r.From)
		if err != nil {
			return b, err
		}
		if rows > 0 {
			b.lanes[cursors[i].Lane] = at
			b.rows += rows
		}
	}
	return b, nil
}

// replayFromSource moves all cursors at once. The holders of the leases lose them at the next
// checkpoint, and lease the lanes again at their new positions.
func (t *Tables) replayFromSource(ctx context.Context, tx *sql.Tx, b store.ReplayBatch, to back) (result store.ReplayResult, err error) {
	for lane, position := range to.lanes {
		if _, err := t.run.Exec(ctx, tx, `UPDATE {cursors} SET position = ?, settled = '', epoch = epoch + 1, owner = NULL, lease_until = NULL, updated_at = {now}
			WHERE sink = ? AND lane = ?`, string(position), b.Sink, lane); err != nil {
			return result, err
		}
	}
	return store.ReplayResult{Changed: int(to.rows), Through: b.UpTo}, nil
}
