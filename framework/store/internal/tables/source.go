package tables

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store"
)

// This file has what differs if the log is a source.

// CheckSource returns store.ErrUnsupported if there is a source whose payloads the tables cannot hold, and
// store.ErrOtherLog if the database's own log has rows, which would never be read. A dialect calls it when
// the store is open.
func (t *Tables) CheckSource(ctx context.Context) error {
	switch {
	case t.run.Source == nil:
		return nil
	case !t.run.Dialect.BinaryPayload():
		return fmt.Errorf("%w: the payload column of %s takes only JSON, and %s may hold anything: create the tables with outbox.payload: bytea",
			store.ErrUnsupported, t.run.named("log"), t.run.Source.Name())
	}
	oldest, err := t.run.Oldest(ctx, t.run.DB, 0)
	if err == nil && oldest != nil {
		err = fmt.Errorf("%w: the outbox has rows, which are not read if the log is %s: use a separate prefix for the tables of a source", store.ErrOtherLog, t.run.Source.Name())
	}
	return err
}

// Probe looks how far the log reaches; see store.Log.
func (r *Runner) Probe(ctx context.Context) (store.Target, error) {
	if r.Source != nil {
		return r.Source.Probe(ctx)
	}
	return r.Dialect.ProbeLog(ctx)
}

// Probe looks how far the log reaches; see store.Log.
func (t *Tables) Probe(ctx context.Context) (store.Target, error) { return t.run.Probe(ctx) }

// NewReader returns a reader that continues at a cursor's position; see store.Log.
func (t *Tables) NewReader(position json.RawMessage, filter store.Filter) (store.Reader, error) {
	if t.run.Source != nil {
		return t.run.Source.NewReader(position, filter)
	}
	return t.run.Dialect.ReadLog(position, filter)
}

// grow creates the cursors that a sink lacks. If several processes do so at once, only one of them
// creates the first cursor, and then the others; the rest of the processes start over.
func (t *Tables) grow(ctx context.Context, sink string, start store.Start, created *store.Created) (done bool, err error) {
	cursors, err := t.run.Cursors(ctx, t.run.Own(), sink)
	if err != nil {
		return false, err
	}
	known := make([]json.RawMessage, len(cursors))
	for i := range cursors {
		if known[i] = cursors[i].Position; cursors[i].StoreLane.Of != store.Slots {
			return false, fmt.Errorf("%w: they do not belong to %s: use a separate prefix for the tables of a source", store.ErrOtherLog, t.run.Source.Name())
		}
	}
	if start == "" {
		if start, err = t.defaultStart(ctx); err != nil {
			return false, err
		}
	}
	begin, err := t.run.Source.Begin(ctx, known, start)
	if err != nil || len(begin) == 0 {
		return err == nil, err
	}
	var paused bool
	var types, wanted sql.NullString
	if len(cursors) > 0 {
		like := &cursors[0]
		paused, types, wanted = like.Paused, EncodeTypes(like.Types), EncodeTypes(like.Wanted)
	}
	free := freeLanes(cursors)
	err = t.run.InTx(ctx, failpoint.Grow, func(tx *sql.Tx) error {
		for _, b := range begin {
			made, err := t.run.Exec(ctx, tx, `INSERT INTO {cursors} (sink, lane, lanes, position, paused, types, types_wanted) VALUES (?, ?, ?, ?, ?, ?, ?)`+
				t.run.Dialect.OnConflict([]string{"sink", "lane"}, nil, Condition{}), sink, free(), store.Slots, string(b.Position), paused, types, wanted)
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
func freeLanes(cursors []Cursor) (next func() int) {
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

func LanePosition(c *Cursor) store.LanePosition {
	return store.LanePosition{Lane: c.StoreLane, Position: c.Position}
}

// placeInSource is placed for a source, whose positions alone say which rows are settled.
func (r *Runner) placeInSource(cursors []Cursor) error {
	for i := range cursors {
		through, err := r.Source.Through(LanePosition(&cursors[i]))
		if err != nil {
			return err
		}
		cursors[i].Place = Place{Through: through}
	}
	return nil
}

// Extent adds how large the log is.
func (r *Runner) Extent(ctx context.Context, sample *store.Sample) (err error) {
	if r.Source == nil {
		if sample.Oldest, err = r.Oldest(ctx, r.DB, 0); err == nil {
			sample.LogBytes, sample.Held, err = r.Dialect.Extent(ctx)
		}
		return err
	}
	e, err := r.Source.Extent(ctx)
	sample.LogBytes, sample.Source, sample.Keeps = e.Bytes, r.Source.Name(), e.Keeps
	if !e.Oldest.IsZero() {
		sample.Oldest = &store.Row{OccurredOn: e.Oldest}
		if e.Whole {
			sample.Oldest.Offset = 1
		}
	}
	return err
}
