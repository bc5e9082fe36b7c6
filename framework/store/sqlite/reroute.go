package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

var _ store.Rerouter = (*Store)(nil)

// CountReroute counts what a reroute is about; see store.Rerouter.
func (s *Store) CountReroute(ctx context.Context, r store.RerouteQuery) ([]store.RerouteCount, error) {
	counts, err := s.countReroute(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("count what has a route now: %w", err)
	}
	return counts, nil
}

func (s *Store) countReroute(ctx context.Context, r store.RerouteQuery) (counts []store.RerouteCount, err error) {
	where, err := s.rerouteCondition(r)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx,
		`SELECT type, state, count(*) FROM `+s.prefix+`_parked p WHERE true`+where.sql+` GROUP BY type, state ORDER BY type, state`, where.args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var c store.RerouteCount
		if err := rows.Scan(&c.Type, &c.State, &c.Count); err != nil {
			return nil, err
		}
		counts = append(counts, c)
	}
	return counts, rows.Err()
}

// rerouteCondition is the condition on parked deliveries, called p.
func (s *Store) rerouteCondition(r store.RerouteQuery) (condition, error) {
	c, err := s.parkedCondition(r.Unrouted())
	if err != nil {
		return c, err
	}
	c.sql += ` AND (false`
	for _, sink := range slices.Sorted(maps.Keys(r.Sinks)) {
		types, args, err := typeCondition(r.Sinks[sink])
		if err != nil {
			return c, err
		}
		c.sql += ` OR (true` + types + `)`
		c.args = append(c.args, args...)
	}
	c.sql += `)`
	return c, nil
}

// Reroute moves the next deliveries; see store.Rerouter.
func (s *Store) Reroute(ctx context.Context, b store.RerouteBatch) (store.RerouteResult, error) {
	result, err := s.reroute(ctx, b)
	if err != nil {
		return store.RerouteResult{}, fmt.Errorf("reroute: %w", err)
	}
	return result, nil
}

// reroute writes first, which waits for the write lock with nothing read.
func (s *Store) reroute(ctx context.Context, b store.RerouteBatch) (result store.RerouteResult, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return result, err
	}
	defer func() { _ = tx.Rollback() }() // of no effect behind the commit
	sinks := slices.Sorted(maps.Keys(b.Sinks))
	names, err := jsonArray(append(slices.Clone(sinks), store.SinkUnrouted))
	if err != nil {
		return result, err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE `+s.prefix+`_cursors SET revision = revision + 1 WHERE sink IN (SELECT value FROM json_each(?))`, names); err != nil {
		return result, err
	}
	found, err := s.unrouted(ctx, tx, b)
	if err != nil {
		return result, err
	}
	result.Done = len(found) < b.Limit
	result.Last = b.After
	if n := len(found); n > 0 {
		result.Last = found[n-1].Ref
	}
	early, err := s.unsettled(ctx, tx, sinks, b, found)
	if err != nil {
		return result, err
	}
	moved := slices.DeleteFunc(found, func(u unroutedRow) bool { return early[u.Ref] })
	result.Changed, result.Left = len(moved), len(early)
	for _, sink := range sinks {
		if err := s.parkFor(ctx, tx, sink, refsOf(moved, b.Sinks[sink]), b); err != nil {
			return result, err
		}
	}
	list, err := jsonArray(pairs(refsOf(moved, notification.AllTypes)))
	if err != nil {
		return result, err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM `+s.prefix+`_parked WHERE sink = ?1 AND ("offset", id) IN (`+eachPairOf2+`)`, store.SinkUnrouted, list); err != nil {
		return result, err
	}
	if err := s.count(ctx, tx, b.Action, len(moved)); err != nil {
		return result, err
	}
	return result, tx.Commit()
}

// unroutedRow is a delivery to be moved.
type unroutedRow struct {
	store.Ref
	typ   string
	inLog bool
}

// refsOf names the deliveries of some types.
func refsOf(rows []unroutedRow, types notification.TypeFilter) (refs []store.Ref) {
	for _, u := range rows {
		if types.Matches(u.typ) {
			refs = append(refs, u.Ref)
		}
	}
	return refs
}

// unrouted selects what a batch is about.
func (s *Store) unrouted(ctx context.Context, tx *sql.Tx, b store.RerouteBatch) (found []unroutedRow, err error) {
	where, err := s.rerouteCondition(b.RerouteQuery)
	if err != nil {
		return nil, err
	}
	where.and(`("offset", id) > (?, ?)`, b.After.Offset, b.After.ID)
	rows, err := tx.QueryContext(ctx,
		`SELECT "offset", id, type, EXISTS (SELECT 1 FROM `+s.prefix+` o WHERE o."offset" = p."offset" AND o.id = p.id)
		FROM `+s.prefix+`_parked p WHERE true`+where.sql+` ORDER BY "offset", id LIMIT ?`, append(where.args, b.Limit)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var u unroutedRow
		if err := rows.Scan(&u.Offset, &u.ID, &u.typ, &u.inLog); err != nil {
			return nil, err
		}
		found = append(found, u)
	}
	return found, rows.Err()
}

// unsettled are the deliveries whose row is in the log and before the cursor of a sink
// that they go to.
func (s *Store) unsettled(ctx context.Context, tx *sql.Tx, sinks []string, b store.RerouteBatch, found []unroutedRow) (map[store.Ref]bool, error) {
	early := make(map[store.Ref]bool)
	for _, sink := range sinks {
		if len(refsOf(found, b.Sinks[sink])) == 0 {
			continue
		}
		st, err := s.standOf(ctx, tx, sink)
		if err != nil {
			return nil, err
		}
		for _, u := range found {
			if u.inLog && b.Sinks[sink].Matches(u.typ) && !st.settles(u.Offset) {
				early[u.Ref] = true
			}
		}
	}
	return early, nil
}

// parkFor parks deliveries for a sink that does not have them yet.
func (s *Store) parkFor(ctx context.Context, tx *sql.Tx, sink string, refs []store.Ref, b store.RerouteBatch) error {
	if len(refs) == 0 {
		return nil
	}
	list, err := jsonArray(pairs(refs))
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, fmt.Sprintf(
		`INSERT INTO %[1]s_parked (sink, `+columns+`, state, attempt, due_at)
		SELECT ?1, `+columns+`, CASE WHEN scheduled THEN 'scheduled' WHEN waits THEN 'blocked' ELSE 'retrying' END, 0,
			CASE WHEN scheduled THEN due_at WHEN waits THEN NULL ELSE ?4 END
		FROM (SELECT `+columns+`, due_at, state = 'scheduled' AS scheduled,
				key <> '' AND (row_number() OVER (PARTITION BY key, state = 'scheduled' ORDER BY "offset") > 1 OR EXISTS (
					SELECT 1 FROM %[1]s_parked b WHERE b.sink = ?1 AND b.key = p.key AND b.key <> '' AND b.state IN ('retrying', 'blocked') AND b.`+keyed+`)) AS waits
			FROM %[1]s_parked p
			WHERE sink = ?3 AND ("offset", id) IN (`+eachPairOf2+`)
				AND NOT EXISTS (SELECT 1 FROM %[1]s_parked b WHERE b.sink = ?1 AND b."offset" = p."offset" AND b.id = p.id)
				AND NOT EXISTS (SELECT 1 FROM %[1]s_receipts r WHERE r.sink = ?1 AND r."offset" = p."offset" AND r.id = p.id))`, s.prefix),
		sink, list, store.SinkUnrouted, formatTime(b.DueAt))
	return err
}
