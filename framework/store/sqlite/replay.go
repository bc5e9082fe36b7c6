package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// CountReplay counts what a replay is about; see store.Replayer.
func (s *Store) CountReplay(ctx context.Context, r store.ReplayQuery) (store.ReplayCount, error) {
	count, err := s.countReplay(ctx, r)
	if err != nil {
		return store.ReplayCount{}, fmt.Errorf("count what to replay to %s: %w", r.Sink, err)
	}
	return count, nil
}

func (s *Store) countReplay(ctx context.Context, r store.ReplayQuery) (count store.ReplayCount, err error) {
	st, err := s.standOf(ctx, s.db, r.Sink)
	if err != nil {
		return count, err
	}
	settled, err := st.settledCondition()
	if err != nil {
		return count, err
	}
	where, err := replayCondition(r)
	if err != nil {
		return count, err
	}
	args := append([]any{r.Sink}, settled.args...)
	err = s.db.QueryRowContext(ctx,
		`SELECT count(*) FILTER (WHERE settled AND NOT parked), count(*) FILTER (WHERE parked), count(*) FILTER (WHERE NOT settled AND NOT parked)
		FROM (SELECT `+s.isParked()+` AS parked, `+settled.sql+` AS settled FROM `+s.prefix+` o WHERE true`+where.sql+`)`,
		append(args, where.args...)...).Scan(&count.Rows, &count.Parked, &count.Unsettled)
	if err != nil {
		return count, err
	}
	count.Oldest, err = s.oldest(ctx, 0)
	return count, err
}

// standOf is where the sink stands, if that tells anything of the log.
func (s *Store) standOf(ctx context.Context, q querier, sink string) (*stand, error) {
	all, err := s.stands(ctx, q, sink)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, s.unknownSink(ctx, sink)
	}
	last, err := s.last(ctx, q)
	if err == nil && int64(all[0].pos) > last {
		err = fmt.Errorf("%w: the cursor is behind offset %d and the log ends at %d", store.ErrOtherLog, all[0].pos, last)
	}
	return &all[0], err
}

// isParked is the condition that a row of the log, called o, is parked for the
// sink that is the argument.
func (s *Store) isParked() string {
	return `EXISTS (SELECT 1 FROM ` + s.prefix + `_parked p WHERE p.sink = ? AND p."offset" = o."offset" AND p.id = o.id)`
}

// replayCondition selects rows of the log.
func replayCondition(r store.ReplayQuery) (c condition, err error) {
	c.and(`"offset" > ? AND "offset" <= ?`, r.After, r.UpTo)
	for _, f := range r.Types {
		types, args, err := typeCondition(f)
		if err != nil {
			return c, err
		}
		c.sql += types
		c.args = append(c.args, args...)
	}
	for bound, t := range map[string]time.Time{`>=`: r.Since, `<`: r.Until} {
		if !t.IsZero() { // the log's times may be in any form
			c.and(`julianday(occurred_on) `+bound+` julianday(?)`, formatTime(t))
		}
	}
	return c, nil
}

// Replay parks the next rows; see store.Replayer.
func (s *Store) Replay(ctx context.Context, b store.ReplayBatch) (store.ReplayResult, error) {
	var result store.ReplayResult
	err := s.administer(ctx, b.Sink, func(tx *sql.Tx) error {
		st, err := s.standOf(ctx, tx, b.Sink)
		if err != nil {
			return err
		}
		if result, err = s.replay(ctx, tx, b, st); err != nil {
			return err
		}
		done, err := tx.ExecContext(ctx, `UPDATE `+s.prefix+`_actions SET count = count + ?, through = ? WHERE id = ? AND through = ?`,
			result.Changed, result.Through, b.Action, b.After)
		if err != nil {
			return err
		}
		return store.CheckMoved(done)
	})
	if err != nil {
		return store.ReplayResult{}, fmt.Errorf("replay to %s: %w", b.Sink, err)
	}
	return result, nil
}

func (s *Store) replay(ctx context.Context, tx *sql.Tx, b store.ReplayBatch, st *stand) (result store.ReplayResult, err error) {
	span := b.ReplayQuery
	span.UpTo = min(b.UpTo, b.After+store.ReplaySpan)
	where, err := replayCondition(span)
	if err != nil {
		return result, err
	}
	settled, err := st.settledCondition()
	if err != nil {
		return result, err
	}
	where.and(settled.sql, settled.args...)
	where.and(`NOT `+s.isParked(), b.Sink)
	// RETURNING names the table's own columns, and the order of its rows is open.
	rows, err := tx.QueryContext(ctx, `INSERT INTO `+s.prefix+`_parked (sink, `+columns+`, state, attempt, due_at)
		SELECT ?, `+columns+`, iif(waits, 'blocked', 'retrying'), 0, iif(waits, NULL, ?)
		FROM (SELECT `+columns+`, key <> '' AND (row_number() OVER (PARTITION BY key ORDER BY "offset") > 1 OR EXISTS (
				SELECT 1 FROM `+s.prefix+`_parked p WHERE p.sink = ? AND p.key = o.key AND p.key <> '' AND p.state IN ('retrying', 'blocked') AND p.`+keyed+`
			)) AS waits
			FROM (SELECT `+columns+` FROM `+s.prefix+` o WHERE true`+where.sql+` ORDER BY "offset" LIMIT ?) o)
		RETURNING "offset"`, append(append([]any{b.Sink, formatTime(b.DueAt), b.Sink}, where.args...), b.Limit)...)
	if err != nil {
		return result, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var offset int64
		if err := rows.Scan(&offset); err != nil {
			return result, err
		}
		result.Changed++
		result.Through = max(result.Through, offset)
	}
	if result.Changed < b.Limit {
		result.Through = span.UpTo // nothing more up to there
	}
	return result, rows.Err()
}
