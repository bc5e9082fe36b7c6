package acts

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// ReplaySpan is how many offsets one batch of a replay covers at most: the sink's checkpoints wait
// for it.
const ReplaySpan = 20_000

// CountReplay counts what a replay would deliver; see store.Inspector.
func (t *Acts) CountReplay(ctx context.Context, r store.ReplayQuery) (count store.ReplayCount, err error) {
	defer t.run.Tried(&err, "count what to replay to %s", r.Sink)
	if t.run.Source != nil {
		back, err := t.goBack(ctx, r)
		if err != nil {
			return count, err
		}
		var sample store.Sample
		err = t.run.Extent(ctx, &sample)
		return store.ReplayCount{Rows: back.rows, Oldest: sample.Oldest}, err
	}
	if r.From != "" {
		return count, fmt.Errorf("%w: the log is the database's, but %s names a record of a source: use since", store.ErrUnsupported, r.From)
	}
	cursors, err := t.run.PlacesOf(ctx, t.run.DB, r.Sink)
	if err != nil {
		return count, err
	}
	err = t.run.Row(ctx, t.run.DB, `SELECT count(CASE WHEN settled AND NOT parked THEN 1 END), count(CASE WHEN parked THEN 1 END),
			count(CASE WHEN NOT settled AND NOT parked THEN 1 END)
		FROM (SELECT ? AS settled, ? AS parked FROM {log} o WHERE ?) counted {whole log parked}`,
		t.run.SettledInAny(cursors), isParked(r.Sink), t.replayed(r)).Scan(&count.Rows, &count.Parked, &count.Unsettled)
	if err != nil {
		return count, err
	}
	count.Oldest, err = t.run.Oldest(ctx, t.run.DB, 0)
	return count, err
}

// isParked is the condition that a row of the log, called o, is parked for a sink.
func isParked(sink string) tables.Expr {
	return tables.SQL(`EXISTS (SELECT 1 FROM {parked} p WHERE p.sink = ? AND p."offset" = o."offset" AND p.id = o.id)`, sink)
}

// replayed is the condition that a query selects a row of the log, called o.
func (t *Acts) replayed(r store.ReplayQuery) tables.Expr {
	where := tables.SQL(`"offset" > ? AND "offset" <= ? AND `+tables.NotCancelled, r.After, r.UpTo)
	for _, types := range r.Types {
		if !types.All() {
			where.And(`?`, t.run.Dialect.Types(types))
		}
	}
	t.run.During(&where, r.Since, r.Until)
	return where
}

// Replay parks the next rows; see store.Operator.
func (t *Acts) Replay(ctx context.Context, b store.ReplayBatch) (store.ReplayResult, error) {
	var result store.ReplayResult
	var to back
	if t.run.Source != nil { // it is asked before the transaction, for which checkpoints wait
		var err error
		if to, err = t.goBack(ctx, b.ReplayQuery); err != nil {
			return store.ReplayResult{}, t.run.Failed(err, "replay to %s", b.Sink)
		}
	}
	sinks := []string{b.Sink}
	err := t.operate(ctx, failpoint.Replay, b.Action, sinks, func(tx *sql.Tx) (changed []string, err error) {
		if t.run.Source != nil {
			result, err = t.replayFromSource(ctx, tx, b, to)
		} else {
			result, err = t.replay(ctx, tx, b)
		}
		if err != nil {
			return nil, err
		}
		if result.Changed > 0 {
			changed = sinks
		}
		moved, err := t.run.Exec(ctx, tx, `UPDATE {actions} SET count = count + ?, through = ?, updated_at = {now} WHERE id = ? AND through = ? AND cancelled_at IS NULL`,
			result.Changed, result.Through, b.Action, b.After)
		if err == nil && moved == 0 {
			err = t.run.Stopped(ctx, tx, b.Action)
		}
		return changed, err
	})
	if err != nil {
		return store.ReplayResult{}, t.run.Failed(err, "replay to %s", b.Sink)
	}
	return result, nil
}

func (t *Acts) replay(ctx context.Context, tx *sql.Tx, b store.ReplayBatch) (result store.ReplayResult, err error) {
	cursors, err := t.run.PlacesOf(ctx, tx, b.Sink)
	if err != nil {
		return result, err
	}
	span := b.ReplayQuery
	span.UpTo = min(b.UpTo, b.After+ReplaySpan)
	rows := tables.SQL(`{log} o WHERE ? AND ? AND NOT ? ORDER BY "offset" {limit} ? {whole log parked}`, t.replayed(span), t.run.SettledInAny(cursors), isParked(b.Sink), b.Limit)
	d := t.run.Dialect
	insert := tables.SQL(`INSERT INTO {parked} (sink, {envelope}, state, attempt, due_at)
		SELECT ?, {envelope}, CASE WHEN early THEN 'scheduled' WHEN waits THEN 'blocked' ELSE 'retrying' END, 0,
			CASE WHEN early THEN `+d.DueTime(`deliver_at`)+` WHEN waits THEN NULL ELSE `+onceNow+` END
		FROM (SELECT {envelope}, early, "key" <> '' AND (row_number() OVER (PARTITION BY "key", early ORDER BY "offset") > 1 OR held) AS waits
			FROM (SELECT {logged}, deliver_at IS NOT NULL AND `+d.LogTime(`deliver_at`)+` > `+d.LogTime(onceNow)+` AS early, ? AS held FROM ?) o) replayed`, b.Sink, keyHeld(b.Sink), rows)
	each := func(rows *sql.Rows) error { // in no particular order
		var offset int64
		err := rows.Scan(&offset)
		result.Changed++
		result.Through = max(result.Through, offset)
		return err
	}
	if t.run.Dialect.Returning() {
		err = t.run.Each(ctx, tx, each, `? RETURNING "offset"`, insert)
	} else if err = t.run.Each(ctx, tx, each, `SELECT "offset" FROM ?`, rows); err == nil && result.Changed > 0 {
		_, err = t.run.Exec(ctx, tx, `?`, insert)
	}
	if result.Changed < b.Limit {
		result.Through = span.UpTo // nothing more up to this offset
	}
	return result, err
}

// back says where a sink's lanes go back to.
type back struct {
	lanes map[int]json.RawMessage // new positions of the lanes that move, by number
	rows  int64                   // how many rows are read again
}

// goBack finds where a replay begins. The lanes go back to it, and everything after it is delivered
// again.
func (t *Acts) goBack(ctx context.Context, r store.ReplayQuery) (b back, err error) {
	if !r.Until.IsZero() || len(r.Types) > 1 && !r.Types[1].All() {
		return b, fmt.Errorf("%w: a replay from %s delivers everything after its beginning: leave out type and until", store.ErrUnsupported, t.run.Source.Name())
	}
	cursors, err := t.run.Cursors(ctx, t.run.DB, r.Sink)
	if err == nil && len(cursors) == 0 {
		err = t.run.UnknownSink(ctx, t.run.DB, r.Sink)
	}
	if err != nil {
		return b, err
	}
	b.lanes = make(map[int]json.RawMessage)
	for i := range cursors {
		at, rows, err := t.run.Source.At(ctx, tables.LanePosition(&cursors[i]), r.Since, r.From)
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
func (t *Acts) replayFromSource(ctx context.Context, tx *sql.Tx, b store.ReplayBatch, to back) (result store.ReplayResult, err error) {
	for lane, position := range to.lanes {
		if _, err := t.run.Exec(ctx, tx, `UPDATE {cursors} SET position = ?, settled = '', epoch = epoch + 1, owner = NULL, lease_until = NULL, updated_at = {now}
			WHERE sink = ? AND lane = ?`, string(position), b.Sink, lane); err != nil {
			return result, err
		}
	}
	return store.ReplayResult{Changed: int(to.rows), Through: b.UpTo}, nil
}
