package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

var _ store.Administrator = (*Store)(nil)

// condition is a WHERE under construction with its arguments.
type condition struct {
	sql  string
	args []any
}

func (c *condition) and(sql string, args ...any) {
	c.sql += " AND " + sql
	c.args = append(c.args, args...)
}

// CountParked counts what matches; see store.Administrator.
func (s *Store) CountParked(ctx context.Context, f store.ParkedFilter) ([]store.ParkedCount, error) {
	counts, err := s.countParked(ctx, f)
	if err == nil && len(counts) == 0 && f.Sink != "" {
		err = s.knows(ctx, f.Sink)
	}
	if err != nil {
		return nil, fmt.Errorf("count parked deliveries: %w", err)
	}
	return counts, nil
}

func (s *Store) countParked(ctx context.Context, f store.ParkedFilter) (counts []store.ParkedCount, err error) {
	where, err := s.parkedCondition(f)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx,
		`SELECT sink, state, count(*) FROM `+s.prefix+`_parked p WHERE true`+where.sql+` GROUP BY sink, state ORDER BY sink, state`, where.args...)
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
	var known bool
	err := s.db.QueryRowContext(ctx,
		`SELECT EXISTS (SELECT 1 FROM `+s.prefix+`_cursors WHERE sink = ?1 AND sink <> ?2) OR EXISTS (SELECT 1 FROM `+s.prefix+`_parked WHERE sink = ?1)`,
		sink, store.SinkPruner).Scan(&known)
	if err == nil && !known {
		err = s.unknownSink(ctx, sink)
	}
	return err
}

// FindParked lists what matches; see store.Administrator.
func (s *Store) FindParked(ctx context.Context, f store.ParkedFilter, after store.ParkedPlace, limit int) ([]store.ParkedDelivery, error) {
	found, err := s.findParked(ctx, f, after, limit)
	if err != nil {
		return nil, fmt.Errorf("list parked deliveries: %w", err)
	}
	return found, nil
}

func (s *Store) findParked(ctx context.Context, f store.ParkedFilter, after store.ParkedPlace, limit int) (found []store.ParkedDelivery, err error) {
	where, err := s.parkedCondition(f)
	if err != nil {
		return nil, err
	}
	where.and(`(sink, "offset", id) > (?, ?, ?)`, after.Sink, after.Offset, after.ID)
	rows, err := s.db.QueryContext(ctx,
		`SELECT `+columns+`, state, attempt, due_at, last_error, first_parked_at, sink, updated_at FROM `+s.prefix+`_parked p
		WHERE true`+where.sql+` ORDER BY sink, "offset", id LIMIT ?`, append(where.args, limit)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	var envelopes scanner
	for rows.Next() && !envelopes.full() {
		var d store.ParkedDelivery
		var updatedAt string
		if d.Parked, err = scanParked(&envelopes, rows, &d.Sink, &updatedAt); err != nil {
			return nil, err
		}
		if d.UpdatedAt, err = parseTime(updatedAt); err != nil {
			return nil, fmt.Errorf("offset %d: updated_at: %w", d.Envelope.Offset, err)
		}
		found = append(found, d)
	}
	return found, rows.Err()
}

// parkedCondition is a filter on parked deliveries, called p.
func (s *Store) parkedCondition(f store.ParkedFilter) (c condition, err error) {
	for column, want := range map[string]string{"sink": f.Sink, "id": f.ID, "key": f.Key} {
		if want != "" {
			c.and(`p.`+column+` = ?`, want)
		}
	}
	if !f.Types.None() {
		types, args, err := typeCondition(f.Types)
		if err != nil {
			return c, err
		}
		c.sql += types
		c.args = append(c.args, args...)
	}
	if len(f.States) > 0 {
		states, err := jsonArray(f.States)
		if err != nil {
			return c, err
		}
		c.and(`state IN (SELECT value FROM json_each(?))`, states)
	}
	if f.Heads {
		c.and(`state = 'dead' AND (p.sink, p.key, p."offset") IN (SELECT sink, key, min("offset") FROM ` + s.prefix + `_parked
			WHERE key <> '' AND ` + keyed + ` GROUP BY sink, key)`)
	}
	if f.OlderThan > 0 {
		c.and(`first_parked_at < `+nowPlus, -milliseconds(f.OlderThan))
	}
	if f.NewerThan > 0 {
		c.and(`first_parked_at >= `+nowPlus, -milliseconds(f.NewerThan))
	}
	if f.Error != "" {
		c.and(`instr(lower(last_error), lower(?)) > 0`, f.Error)
	}
	return c, nil
}

// Requeue makes deliveries due; see store.Administrator.
func (s *Store) Requeue(ctx context.Context, b store.ParkedBatch, dueAt time.Time) (store.ParkedBatchResult, error) {
	b.Filter.States = store.Requeueable(b.Filter.States)
	result, err := s.parkedBatch(ctx, b, func(tx *sql.Tx, refs string) error {
		// Those that wait come first: they are told by the states of the others.
		_, err := tx.ExecContext(ctx,
			`UPDATE `+s.prefix+`_parked AS p SET state = 'blocked', due_at = NULL, attempt = 0, updated_at = `+now+`
			WHERE sink = ?1 AND ("offset", id) IN (`+eachPairOf2+`) AND state = 'dead' AND key <> '' AND EXISTS (
				SELECT 1 FROM `+s.prefix+`_parked b WHERE b.sink = p.sink AND b.key = p.key AND b.key <> '' AND b."offset" < p."offset"
					AND b.`+keyed+` AND (b.state IN ('retrying', 'blocked') OR (b."offset", b.id) IN (`+eachPairOf2+`)))`, b.Filter.Sink, refs)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx,
			`UPDATE `+s.prefix+`_parked SET state = 'retrying', due_at = ?3, attempt = 0, updated_at = `+now+`
			WHERE sink = ?1 AND ("offset", id) IN (`+eachPairOf2+`) AND state IN ('dead', 'retrying')`, b.Filter.Sink, refs, formatTime(dueAt))
		return err
	})
	if err != nil {
		return result, fmt.Errorf("requeue parked deliveries of %s: %w", b.Filter.Sink, err)
	}
	return result, nil
}

// eachPairOf2 is eachPair of the second argument, which may be used twice.
const eachPairOf2 = `SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?2)`

// Discard deletes deliveries; see store.Administrator.
func (s *Store) Discard(ctx context.Context, b store.ParkedBatch) (store.ParkedBatchResult, error) {
	result, err := s.parkedBatch(ctx, b, func(tx *sql.Tx, refs string) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM `+s.prefix+`_parked WHERE sink = ?1 AND ("offset", id) IN (`+eachPairOf2+`)`, b.Filter.Sink, refs)
		return err
	})
	if err != nil {
		return result, fmt.Errorf("discard parked deliveries of %s: %w", b.Filter.Sink, err)
	}
	return result, nil
}

// administer runs a batch of an action. It writes first, which waits for the
// write lock with nothing read.
func (s *Store) administer(ctx context.Context, sink string, do func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // of no effect behind the commit
	if _, err := tx.ExecContext(ctx, `UPDATE `+s.prefix+`_cursors SET revision = revision + 1 WHERE sink = ?`, sink); err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// parkedBatch selects what a batch is about, has it changed, and counts that.
func (s *Store) parkedBatch(ctx context.Context, b store.ParkedBatch, change func(tx *sql.Tx, refs string) error) (store.ParkedBatchResult, error) {
	result := store.ParkedBatchResult{Last: b.After}
	err := s.administer(ctx, b.Filter.Sink, func(tx *sql.Tx) error {
		refs, err := s.selectParked(ctx, tx, b)
		if err != nil {
			return err
		}
		result.Changed, result.Done = len(refs), len(refs) < b.Limit
		if len(refs) > 0 {
			result.Last = refs[len(refs)-1]
			list, err := jsonArray(pairs(refs))
			if err != nil {
				return err
			}
			if err := change(tx, list); err != nil {
				return err
			}
		}
		return s.count(ctx, tx, b.Action, len(refs))
	})
	return result, err
}

func (s *Store) selectParked(ctx context.Context, tx *sql.Tx, b store.ParkedBatch) (refs []store.Ref, err error) {
	where, err := s.parkedCondition(b.Filter)
	if err != nil {
		return nil, err
	}
	where.and(`("offset", id) > (?, ?)`, b.After.Offset, b.After.ID)
	rows, err := tx.QueryContext(ctx,
		`SELECT "offset", id FROM `+s.prefix+`_parked p WHERE true`+where.sql+` ORDER BY "offset", id LIMIT ?`, append(where.args, b.Limit)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var ref store.Ref
		if err := rows.Scan(&ref.Offset, &ref.ID); err != nil {
			return nil, err
		}
		refs = append(refs, ref)
	}
	return refs, rows.Err()
}

// Pause has nobody work on a sink; see store.Administrator.
func (s *Store) Pause(ctx context.Context, action, sink string, paused bool) (changed bool, err error) {
	err = s.administer(ctx, sink, func(tx *sql.Tx) error {
		var cursors, others int
		if err := tx.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE paused <> ?2) FROM `+s.prefix+`_cursors WHERE sink = ?1 AND sink <> ?3`,
			sink, paused, store.SinkPruner).Scan(&cursors, &others); err != nil {
			return err
		}
		if cursors == 0 {
			return s.unknownSink(ctx, sink)
		}
		if changed = others > 0; !changed {
			return nil
		}
		if _, err := tx.ExecContext(ctx, `UPDATE `+s.prefix+`_cursors SET paused = ? WHERE sink = ?`, paused, sink); err != nil {
			return err
		}
		return s.count(ctx, tx, action, 1)
	})
	if err != nil {
		return false, fmt.Errorf("pause or resume sink %s: %w", sink, err)
	}
	return changed, nil
}
