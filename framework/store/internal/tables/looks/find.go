// Package looks has what people and monitoring see of the tables of an outbox, the same in every database.
package looks

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// Looks are what people and monitoring see of the tables. They change nothing, and are safe for concurrent
// use.
type Looks struct{ run *tables.Runner }

// New returns the looks at the tables that a Runner names.
func New(r *tables.Runner) *Looks { return &Looks{run: r} }

// CountParked counts what matches; see store.Inspector.
func (t *Looks) CountParked(ctx context.Context, f store.ParkedFilter) (counts []store.ParkedCount, changed time.Time, err error) {
	defer t.run.Tried(&err, "count parked deliveries")
	counts, err = tables.List(ctx, t.run, t.run.DB, func(rows *sql.Rows, c *store.ParkedCount) error {
		var last time.Time
		err := rows.Scan(&c.Sink, &c.State, &c.Count, &c.HookError, t.run.Into(&last))
		if last.After(changed) {
			changed = last
		}
		return err
	}, `SELECT sink, state, count(*), max(hook_error), max(updated_at) FROM (SELECT sink, `+tables.PresentState+` AS state, hook_error, updated_at FROM {parked} p WHERE ?) counted
		GROUP BY sink, state ORDER BY sink, state {whole parked}`, t.run.Matches(f))
	if err == nil && len(counts) == 0 && f.Sink != "" {
		err = t.knows(ctx, f.Sink)
	}
	return counts, changed, err
}

// knows returns store.ErrUnknownSink for a sink that has neither cursors nor parked deliveries.
func (t *Looks) knows(ctx context.Context, sink string) error {
	traces, err := t.run.Traces(ctx, sink)
	if err == nil && traces.Cursors == 0 && traces.Parked == 0 {
		err = t.run.UnknownSink(ctx, t.run.DB, sink)
	}
	return err
}

// FindParked returns what matches; see store.Inspector.
func (t *Looks) FindParked(ctx context.Context, f store.ParkedFilter, after store.ParkedPlace, limit int) ([]store.ParkedDelivery, error) {
	where := t.run.Matches(f)
	where.And(`(sink, "offset", id) > (?, ?, ?)`, after.Sink, after.Offset, after.ID)
	found, _, err := t.run.Parked(ctx, t.run.DB, limit, tables.ParkedQuery(tables.SQL(`? ORDER BY sink, "offset", id {limit} ?`, where, limit)))
	if err != nil {
		return nil, t.run.Failed(err, "list parked deliveries")
	}
	return found, nil
}

// Traces counts what the outbox has of a sink; see store.Inspector.
func (t *Looks) Traces(ctx context.Context, sink string) (store.Traces, error) {
	traces, err := t.run.Traces(ctx, sink)
	if err == nil && traces.None() {
		err = t.run.UnknownSink(ctx, t.run.DB, sink)
	}
	if err != nil {
		return store.Traces{}, t.run.Failed(err, "look for sink %s", sink)
	}
	return traces, nil
}

// Oldest returns the first row of the log; see store.Inspector.
func (t *Looks) Oldest(ctx context.Context) (*store.Row, error) {
	row, err := t.run.Oldest(ctx, t.run.DB, 0)
	if err != nil {
		return nil, t.run.Failed(err, "look for the oldest row")
	}
	return row, nil
}

// Holders returns the sinks that keep rows in the log; see store.Inspector.
func (t *Looks) Holders(ctx context.Context, sinks []string) (holders []store.Holder, err error) {
	if t.run.Source != nil {
		return nil, nil // a source keeps rows by its own rules
	}
	defer t.run.Tried(&err, "find the sinks that keep the log")
	kept, err := t.run.Dialect.Kept(ctx, sinks)
	return kept.Holders, err
}

// CursorFaults returns, by sink, why cursors do not belong to this log, for example because it was
// restored or truncated, or because a lane has no cursor.
func (t *Looks) CursorFaults(ctx context.Context) (faults map[string]string, err error) {
	defer t.run.Tried(&err, "compare the cursors with the log")
	if t.run.Source != nil {
		return t.sourceFaults(ctx)
	}
	kept, err := t.run.Dialect.Kept(ctx, nil)
	return kept.Faults, err
}

// sourceFaults returns, by sink, why cursors do not belong to the source.
func (t *Looks) sourceFaults(ctx context.Context) (map[string]string, error) {
	cursors, err := t.run.Cursors(ctx, t.run.DB, "")
	if err != nil {
		return nil, err
	}
	faults := make(map[string]string)
	for lanes := range tables.SinksOf(cursors) {
		known := make([]json.RawMessage, len(lanes))
		for i := range lanes {
			known[i] = lanes[i].Position
		}
		if _, err := t.run.Source.Begin(ctx, known, store.StartNow); err != nil {
			faults[lanes[0].Sink] = err.Error()
		}
	}
	return faults, nil
}

// Unread returns store.ErrUnsafeLog, with the SQL that appends them again, if the log has rows that no
// reader finds: with an offset below 1, which a producer chose.
func (t *Looks) Unread(ctx context.Context) error {
	if t.run.Source != nil {
		return nil
	}
	var rows int
	if err := t.run.Row(ctx, t.run.DB, `SELECT count(*) FROM {log} WHERE "offset" < 1`).Scan(&rows); err != nil {
		return fmt.Errorf("look for rows with offsets below 1: %w", err)
	}
	if rows == 0 {
		return nil
	}
	const columns = `id, type, version, "key", occurred_on, deliver_at, metadata, payload`
	mend, _ := t.run.Render(tables.SQL(`BEGIN; INSERT INTO {log} (` + columns + `) SELECT ` + columns +
		` FROM {log} WHERE "offset" < 1 ORDER BY "offset"; DELETE FROM {log} WHERE "offset" < 1; COMMIT;`))
	return fmt.Errorf("%w: %d rows have an offset below 1, which a producer chose, and are never delivered; to fix it: %s", store.ErrUnsafeLog, rows, mend)
}
