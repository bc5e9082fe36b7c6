package tables

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// ReplaySpan is how many offsets one batch of a replay covers at most: the sink's checkpoints wait
// for it.
const ReplaySpan = 20_000

// CountReplay counts what a replay would deliver; see store.Inspector.
func (t *Tables) CountReplay(ctx context.Context, r store.ReplayQuery) (count store.ReplayCount, err error) {
	defer t.tried(&err, "count what to replay to %s", r.Sink)
	if t.source != nil {
		back, err := t.goBack(ctx, r)
		if err != nil {
			return count, err
		}
		var sample store.Sample
		err = t.extent(ctx, &sample)
		return store.ReplayCount{Rows: back.rows, Oldest: sample.Oldest}, err
	}
	if r.From != "" {
		return count, fmt.Errorf("%w: the log is the database's, but %s names a record of a source: use since", store.ErrUnsupported, r.From)
	}
	cursors, err := t.placesOf(ctx, t.db, r.Sink)
	if err != nil {
		return count, err
	}
	err = t.run.Row(ctx, t.db, `SELECT count(CASE WHEN settled AND NOT parked THEN 1 END), count(CASE WHEN parked THEN 1 END),
			count(CASE WHEN NOT settled AND NOT parked THEN 1 END)
		FROM (SELECT ? AS settled, ? AS parked FROM {log} o WHERE ?) counted {whole log parked}`,
		t.settledInAny(cursors), isParked(r.Sink), t.replayed(r)).Scan(&count.Rows, &count.Parked, &count.Unsettled)
	if err != nil {
		return count, err
	}
	count.Oldest, err = t.run.Oldest(ctx, t.db, 0)
	return count, err
}

// isParked is the condition that a row of the log, called o, is parked for a sink.
func isParked(sink string) Expr {
	return SQL(`EXISTS (SELECT 1 FROM {parked} p WHERE p.sink = ? AND p."offset" = o."offset" AND p.id = o.id)`, sink)
}

// replayed is the condition that a query selects a row of the log, called o.
func (t *Tables) replayed(r store.ReplayQuery) Expr {
	where := SQL(`"offset" > ? AND "offset" <= ? AND `+NotCancelled, r.After, r.UpTo)
	for _, types := range r.Types {
		if !types.All() {
			where.and(`?`, t.dialect.Types(types))
		}
	}
	d := t.dialect
	if !r.Since.IsZero() {
		where.and(d.LogTime(`occurred_on`)+` >= `+d.LogTime(`?`), d.Time(r.Since))
	}
	if !r.Until.IsZero() {
		where.and(d.LogTime(`occurred_on`)+` < `+d.LogTime(`?`), d.Time(r.Until))
	}
	return where
}

// Replay parks the next rows; see store.Operator.
func (t *Tables) Replay(ctx context.Context, b store.ReplayBatch) (store.ReplayResult, error) {
	var result store.ReplayResult
	var to back
	if t.source != nil { // it is asked before the transaction, for which checkpoints wait
		var err error
		if to, err = t.goBack(ctx, b.ReplayQuery); err != nil {
			return store.ReplayResult{}, t.failed(err, "replay to %s", b.Sink)
		}
	}
	sinks := []string{b.Sink}
	err := t.operate(ctx, b.Action, sinks, func(tx *sql.Tx) (changed []string, err error) {
		if t.source != nil {
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
			err = t.stopped(ctx, tx, b.Action)
		}
		return changed, err
	})
	if err != nil {
		return store.ReplayResult{}, t.failed(err, "replay to %s", b.Sink)
	}
	return result, nil
}

func (t *Tables) replay(ctx context.Context, tx *sql.Tx, b store.ReplayBatch) (result store.ReplayResult, err error) {
	cursors, err := t.placesOf(ctx, tx, b.Sink)
	if err != nil {
		return result, err
	}
	span := b.ReplayQuery
	span.UpTo = min(b.UpTo, b.After+ReplaySpan)
	rows := SQL(`{log} o WHERE ? AND ? AND NOT ? ORDER BY "offset" LIMIT ? {whole log parked}`, t.replayed(span), t.settledInAny(cursors), isParked(b.Sink), b.Limit)
	d := t.dialect
	insert := SQL(`INSERT INTO {parked} (sink, {envelope}, state, attempt, due_at)
		SELECT ?, {envelope}, CASE WHEN early THEN 'scheduled' WHEN waits THEN 'blocked' ELSE 'retrying' END, 0,
			CASE WHEN early THEN `+d.DueTime(`deliver_at`)+` WHEN waits THEN NULL ELSE `+onceNow+` END
		FROM (SELECT {envelope}, early, "key" <> '' AND (row_number() OVER (PARTITION BY "key", early ORDER BY "offset") > 1 OR held) AS waits
			FROM (SELECT {envelope}, deliver_at IS NOT NULL AND `+d.LogTime(`deliver_at`)+` > `+d.LogTime(onceNow)+` AS early, ? AS held FROM ?) o) replayed`, b.Sink, keyHeld(b.Sink), rows)
	each := func(rows *sql.Rows) error { // in no particular order
		var offset int64
		err := rows.Scan(&offset)
		result.Changed++
		result.Through = max(result.Through, offset)
		return err
	}
	if t.dialect.Returning() {
		err = t.run.Each(ctx, tx, each, `? RETURNING "offset"`, insert)
	} else if err = t.run.Each(ctx, tx, each, `SELECT "offset" FROM ?`, rows); err == nil && result.Changed > 0 {
		_, err = t.run.Exec(ctx, tx, `?`, insert)
	}
	if result.Changed < b.Limit {
		result.Through = span.UpTo // nothing more up to this offset
	}
	return result, err
}
