package postgres

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// CountReplay counts what a replay is about; see store.Replayer.
func (s *Store) CountReplay(ctx context.Context, r store.ReplayQuery) (store.ReplayCount, error) {
	count, err := s.countReplay(ctx, r)
	if err != nil {
		return store.ReplayCount{}, fmt.Errorf("count what to replay to %s: %w", r.Sink, advise(err))
	}
	return count, nil
}

func (s *Store) countReplay(ctx context.Context, r store.ReplayQuery) (count store.ReplayCount, err error) {
	all, err := s.stands(ctx, s.db, r.Sink)
	if err != nil {
		return count, err
	}
	now, err := s.Probe(ctx) // after the cursors were read, so that it comes after them
	if err != nil {
		return count, err
	}
	if err := s.checkStands(ctx, all, now.(*probe), r.Sink); err != nil {
		return count, err
	}
	q := &statement{}
	q.WriteString(`SELECT count(*) FILTER (WHERE settled AND NOT parked), count(*) FILTER (WHERE parked), count(*) FILTER (WHERE NOT settled AND NOT parked)
		FROM (SELECT settled, ` + s.isParked(q, r.Sink) + ` AS parked FROM (SELECT "offset", id, ` + settledByAll(q, all) + ` AS settled FROM ` + s.sql.prefix)
	replaySQL(q, r)
	q.WriteString(`) o) counted`)
	if err := s.db.QueryRowContext(ctx, q.String(), q.args...).Scan(&count.Rows, &count.Parked, &count.Unsettled); err != nil {
		return count, err
	}
	count.Oldest, err = s.oldest(ctx, s.db)
	return count, err
}

// checkStands says whether the cursors tell anything of the log.
func (s *Store) checkStands(ctx context.Context, all []stand, now *probe, sink string) error {
	if len(all) == 0 {
		return s.unknownSink(ctx, sink)
	}
	for i := range all {
		if reason := all[i].conflict(now); reason != "" {
			return fmt.Errorf("%w: %s", store.ErrOtherLog, reason)
		}
	}
	return nil
}

// isParked is the condition that a row of the log, called o, is parked.
func (s *Store) isParked(q *statement, sink string) string {
	return `EXISTS (SELECT FROM ` + s.sql.prefix + `_parked p WHERE p.sink = ` + q.arg(sink) + ` AND p."offset" = o."offset" AND p.id = o.id)`
}

// replaySQL adds the conditions on rows of the log.
func replaySQL(q *statement, r store.ReplayQuery) {
	q.WriteString(` WHERE "offset" > ` + q.arg(r.After) + ` AND "offset" <= ` + q.arg(r.UpTo))
	for _, types := range r.Types {
		typesSQL(q, types)
	}
	if !r.Since.IsZero() {
		q.WriteString(` AND occurred_on >= ` + q.arg(r.Since))
	}
	if !r.Until.IsZero() {
		q.WriteString(` AND occurred_on < ` + q.arg(r.Until))
	}
}

// Replay parks the next rows; see store.Replayer.
func (s *Store) Replay(ctx context.Context, b store.ReplayBatch) (store.ReplayResult, error) {
	if s.system.Load() == nil { // or asking for it in vain would end the transaction
		if _, err := s.Probe(ctx); err != nil {
			return store.ReplayResult{}, err
		}
	}
	var result store.ReplayResult
	err := s.administer(ctx, b.Sink, func(tx *sql.Tx) error {
		all, err := s.stands(ctx, tx, b.Sink)
		if err != nil {
			return err
		}
		now, err := s.look(ctx, tx, s.sql.probe)
		if err != nil {
			return err
		}
		if err := s.checkStands(ctx, all, now, b.Sink); err != nil {
			return err
		}
		if result, err = s.replay(ctx, tx, b, all); err != nil {
			return err
		}
		return s.advance(ctx, tx, b, result)
	})
	if err != nil {
		return store.ReplayResult{}, fmt.Errorf("replay to %s: %w", b.Sink, advise(err))
	}
	return result, nil
}

func (s *Store) replay(ctx context.Context, tx *sql.Tx, b store.ReplayBatch, all []stand) (result store.ReplayResult, err error) {
	rows := b.ReplayQuery
	rows.UpTo = min(b.UpTo, b.After+store.ReplaySpan)
	q := &statement{}
	q.WriteString(`INSERT INTO ` + s.sql.prefix + `_parked (sink, ` + columns + `, state, attempt, due_at)
		SELECT ` + q.arg(b.Sink) + `, ` + columns + `, CASE WHEN waits THEN 'blocked' ELSE 'retrying' END, 0,
			CASE WHEN waits THEN NULL ELSE ` + q.arg(b.DueAt) + `::timestamptz END
		FROM (SELECT ` + columns + `, key <> '' AND (row_number() OVER (PARTITION BY key ORDER BY "offset") > 1 OR EXISTS (
				SELECT FROM ` + s.sql.prefix + `_parked p WHERE p.sink = ` + q.arg(b.Sink) + ` AND p.key = o.key AND p.key <> '' AND p.state IN ('retrying', 'blocked')
			)) AS waits
			FROM (SELECT ` + columns + ` FROM (SELECT ` + columns + ` FROM ` + s.sql.prefix)
	replaySQL(q, rows)
	q.WriteString(` AND ` + settledByAll(q, all) + `) o WHERE NOT ` + s.isParked(q, b.Sink) + ` ORDER BY "offset" LIMIT ` + q.arg(b.Limit) + `) o) o
		RETURNING "offset"`)
	return result, s.eachOffset(ctx, tx, q, func(offset int64) {
		result.Changed++
		result.Through = max(result.Through, offset)
	}, func() {
		if result.Changed < b.Limit {
			result.Through = rows.UpTo // nothing more up to there
		}
	})
}

// eachOffset runs a statement that returns offsets, and then calls end.
func (s *Store) eachOffset(ctx context.Context, tx *sql.Tx, q *statement, each func(offset int64), end func()) (err error) {
	rows, err := tx.QueryContext(ctx, q.String(), q.args...)
	if err != nil {
		return err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var offset int64
		if err := rows.Scan(&offset); err != nil {
			return err
		}
		each(offset)
	}
	end()
	return rows.Err()
}

// advance records how far a replay has got, if it has got where the batch begins.
func (s *Store) advance(ctx context.Context, tx *sql.Tx, b store.ReplayBatch, result store.ReplayResult) error {
	done, err := tx.ExecContext(ctx, `UPDATE `+s.sql.prefix+`_actions SET count = count + $2, through = $3 WHERE id = $1 AND through = $4`,
		b.Action, result.Changed, result.Through, b.After)
	if err != nil {
		return err
	}
	return store.CheckMoved(done)
}
