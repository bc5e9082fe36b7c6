package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store"
)

var _ store.Administrator = (*Store)(nil)

// CountParked counts what matches; see store.Administrator.
func (s *Store) CountParked(ctx context.Context, f store.ParkedFilter) ([]store.ParkedCount, error) {
	counts, err := s.countParked(ctx, f)
	if err == nil && len(counts) == 0 && f.Sink != "" {
		err = s.knows(ctx, f.Sink)
	}
	if err != nil {
		return nil, fmt.Errorf("count parked deliveries: %w", advise(err))
	}
	return counts, nil
}

func (s *Store) countParked(ctx context.Context, f store.ParkedFilter) (counts []store.ParkedCount, err error) {
	q := statement{}
	q.WriteString(`SELECT sink, state, count(*) FROM ` + s.sql.prefix + `_parked p WHERE true`)
	s.parkedSQL(&q, f)
	q.WriteString(` GROUP BY sink, state ORDER BY sink, state`)
	rows, err := s.db.QueryContext(ctx, q.String(), q.args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var c store.ParkedCount
		if err := rows.Scan(&c.Sink, &c.State, &c.Count); err != nil {
			return nil, err
		}
		counts = append(counts, c)
	}
	return counts, rows.Err()
}

// knows gives store.ErrUnknownSink for a sink that has neither cursors nor
// anything parked.
func (s *Store) knows(ctx context.Context, sink string) error {
	traces, err := s.traces(ctx, s.db, sink)
	if err == nil && traces.Cursors == 0 && traces.Parked == 0 {
		err = s.unknownSink(ctx, sink)
	}
	return err
}

// FindParked lists what matches; see store.Administrator.
func (s *Store) FindParked(ctx context.Context, f store.ParkedFilter, after store.ParkedPlace, limit int) ([]store.ParkedDelivery, error) {
	found, err := s.findParked(ctx, f, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list parked deliveries: %w", advise(err))
	}
	return found, nil
}

func (s *Store) findParked(ctx context.Context, f store.ParkedFilter, after store.ParkedPlace, limit int) (found []store.ParkedDelivery, err error) {
	q := statement{}
	q.WriteString(`SELECT ` + parkedColumns + `, sink, updated_at FROM ` + s.sql.prefix + `_parked p WHERE true`)
	s.parkedSQL(&q, f)
	q.WriteString(` AND (sink, "offset", id) > (` + q.arg(after.Sink) + `, ` + q.arg(after.Offset) + `, ` + q.arg(after.ID) + `)
		ORDER BY sink, "offset", id LIMIT ` + q.arg(limit))
	envelopes := newScanner(0)
	err = stream(ctx, s.db, q.String(), q.args, func(row []driver.Value) (bool, error) {
		parked, rest, err := envelopes.scanParked(row)
		if err != nil {
			return false, err
		}
		found = append(found, store.ParkedDelivery{Parked: parked, Sink: rest.text(), UpdatedAt: rest.time()})
		return envelopes.bytes < pageBytes, rest.err
	})
	return found, err
}

// parkedSQL adds the conditions of a filter on parked deliveries, called p.
func (s *Store) parkedSQL(q *statement, f store.ParkedFilter) {
	for column, want := range map[string]string{"sink": f.Sink, "id": f.ID, "key": f.Key} {
		if want != "" {
			q.WriteString(` AND p.` + column + ` = ` + q.arg(want))
		}
	}
	if !f.Types.None() {
		typesSQL(q, f.Types)
	}
	if len(f.States) > 0 {
		q.WriteString(` AND state = ANY(` + q.arg(pq.Array(f.States)) + `::text[])`)
	}
	if f.Heads {
		// Not one look for each row: nothing tells how many a key has.
		q.WriteString(` AND state = 'dead' AND (p.sink, p.key, p."offset") IN (SELECT sink, key, min("offset") FROM ` + s.sql.prefix + `_parked
			WHERE key <> '' AND state IN (` + holding(true) + `) GROUP BY sink, key)`)
	}
	if f.OlderThan > 0 {
		q.WriteString(` AND first_parked_at < clock_timestamp() - ` + q.arg(f.OlderThan.Microseconds()) + ` * interval '1 microsecond'`)
	}
	if f.NewerThan > 0 {
		q.WriteString(` AND first_parked_at >= clock_timestamp() - ` + q.arg(f.NewerThan.Microseconds()) + ` * interval '1 microsecond'`)
	}
	if f.Error != "" {
		q.WriteString(` AND strpos(lower(last_error), lower(` + q.arg(f.Error) + `)) > 0`)
	}
}

// Requeue makes deliveries due; see store.Administrator.
func (s *Store) Requeue(ctx context.Context, b store.ParkedBatch, dueAt time.Time) (store.ParkedBatchResult, error) {
	b.Filter.States = store.Requeueable(b.Filter.States)
	result, err := s.parkedBatch(ctx, b, func(tx *sql.Tx, offsets []int64, ids []string) error {
		// The statement sees the states as they were before it.
		const waits = `state = 'dead' AND key <> '' AND EXISTS (SELECT FROM %[1]s_parked b
			WHERE b.sink = p.sink AND b.key = p.key AND b.key <> '' AND b."offset" < p."offset" AND b.state IN ('retrying', 'blocked', 'dead')
				AND (b.state IN ('retrying', 'blocked') OR b."offset" = ANY($2::bigint[])))`
		_, err := tx.ExecContext(ctx, fmt.Sprintf(
			`UPDATE %[1]s_parked p SET attempt = 0, updated_at = clock_timestamp(),
				state = CASE WHEN `+waits+` THEN 'blocked' ELSE 'retrying' END,
				due_at = CASE WHEN `+waits+` THEN NULL ELSE $4::timestamptz END
			WHERE sink = $1 AND ("offset", id) IN (SELECT * FROM unnest($2::bigint[], $3::text[]))`, s.sql.prefix),
			b.Filter.Sink, pq.Array(offsets), pq.Array(ids), dueAt)
		return err
	})
	if err != nil {
		return result, fmt.Errorf("requeue parked deliveries of %s: %w", b.Filter.Sink, advise(err))
	}
	return result, nil
}

// Discard deletes deliveries; see store.Administrator.
func (s *Store) Discard(ctx context.Context, b store.ParkedBatch) (store.ParkedBatchResult, error) {
	result, err := s.parkedBatch(ctx, b, func(tx *sql.Tx, offsets []int64, ids []string) error {
		_, err := tx.ExecContext(ctx,
			`DELETE FROM `+s.sql.prefix+`_parked WHERE sink = $1 AND ("offset", id) IN (SELECT * FROM unnest($2::bigint[], $3::text[]))`,
			b.Filter.Sink, pq.Array(offsets), pq.Array(ids))
		return err
	})
	if err != nil {
		return result, fmt.Errorf("discard parked deliveries of %s: %w", b.Filter.Sink, advise(err))
	}
	return result, nil
}

// administer runs a batch of an action. Read committed is what lets it see, behind
// the lock on the cursors, what the checkpoints before it have written, whatever
// the database's default is.
func (s *Store) administer(ctx context.Context, sink string, do func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // of no effect behind the commit
	_, err = tx.ExecContext(ctx,
		`WITH held AS (SELECT lane FROM `+s.sql.prefix+`_cursors WHERE sink = $1 ORDER BY lane FOR UPDATE)
		UPDATE `+s.sql.prefix+`_cursors c SET revision = revision + 1 FROM held WHERE c.sink = $1 AND c.lane = held.lane`, sink)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return err
	}
	// Forwarders that listen look at the roster at once.
	if _, err := tx.ExecContext(ctx, `SELECT pg_notify($1, $2)`, s.listening.channel, lanesNews); err != nil {
		return err
	}
	return tx.Commit()
}

// parkedBatch selects what a batch is about, has it changed, and counts that.
func (s *Store) parkedBatch(ctx context.Context, b store.ParkedBatch, change func(tx *sql.Tx, offsets []int64, ids []string) error) (store.ParkedBatchResult, error) {
	result := store.ParkedBatchResult{Last: b.After}
	err := s.administer(ctx, b.Filter.Sink, func(tx *sql.Tx) error {
		offsets, ids, err := s.selectParked(ctx, tx, b)
		if err != nil {
			return err
		}
		result.Changed, result.Done = len(ids), len(ids) < b.Limit
		if len(ids) > 0 {
			result.Last = store.Ref{Offset: offsets[len(ids)-1], ID: ids[len(ids)-1]}
			if err := change(tx, offsets, ids); err != nil {
				return err
			}
		}
		return s.count(ctx, tx, b.Action, len(ids))
	})
	return result, err
}

func (s *Store) selectParked(ctx context.Context, tx *sql.Tx, b store.ParkedBatch) (offsets []int64, ids []string, err error) {
	q := statement{}
	q.WriteString(`SELECT "offset", id FROM ` + s.sql.prefix + `_parked p WHERE true`)
	s.parkedSQL(&q, b.Filter)
	q.WriteString(` AND ("offset", id) > (` + q.arg(b.After.Offset) + `, ` + q.arg(b.After.ID) + `) ORDER BY "offset", id LIMIT ` + q.arg(b.Limit))
	rows, err := tx.QueryContext(ctx, q.String(), q.args...)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var ref store.Ref
		if err := rows.Scan(&ref.Offset, &ref.ID); err != nil {
			return nil, nil, err
		}
		offsets, ids = append(offsets, ref.Offset), append(ids, ref.ID)
	}
	return offsets, ids, rows.Err()
}

// Pause has nobody work on a sink; see store.Administrator.
func (s *Store) Pause(ctx context.Context, action, sink string, paused bool) (changed bool, err error) {
	err = s.administer(ctx, sink, func(tx *sql.Tx) error {
		var cursors, others int
		if err := tx.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE paused <> $2) FROM `+s.sql.prefix+`_cursors WHERE sink = $1 AND sink <> $3`,
			sink, paused, store.SinkPruner).Scan(&cursors, &others); err != nil {
			return err
		}
		if cursors == 0 {
			return s.unknownSink(ctx, sink)
		}
		if changed = others > 0; !changed {
			return nil
		}
		if _, err := tx.ExecContext(ctx, `UPDATE `+s.sql.prefix+`_cursors SET paused = $2 WHERE sink = $1`, sink, paused); err != nil {
			return err
		}
		return s.count(ctx, tx, action, 1)
	})
	if err != nil {
		return false, fmt.Errorf("pause or resume sink %s: %w", sink, advise(err))
	}
	return changed, nil
}
