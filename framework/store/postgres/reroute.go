package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

var _ store.Rerouter = (*Store)(nil)

// CountReroute counts what a reroute is about; see store.Rerouter.
func (s *Store) CountReroute(ctx context.Context, r store.RerouteQuery) ([]store.RerouteCount, error) {
	counts, err := s.countReroute(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("count what has a route now: %w", advise(err))
	}
	return counts, nil
}

func (s *Store) countReroute(ctx context.Context, r store.RerouteQuery) (counts []store.RerouteCount, err error) {
	q := &statement{}
	q.WriteString(`SELECT type, state, count(*) FROM ` + s.sql.prefix + `_parked p WHERE true`)
	s.rerouteSQL(q, r)
	q.WriteString(` GROUP BY type, state ORDER BY type COLLATE "C", state`)
	rows, err := s.db.QueryContext(ctx, q.String(), q.args...)
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

// rerouteSQL adds the conditions on parked deliveries, called p.
func (s *Store) rerouteSQL(q *statement, r store.RerouteQuery) {
	s.parkedSQL(q, r.Unrouted())
	q.WriteString(` AND (false`)
	for _, sink := range slices.Sorted(maps.Keys(r.Sinks)) {
		q.WriteString(` OR (true`)
		typesSQL(q, r.Sinks[sink])
		q.WriteString(`)`)
	}
	q.WriteString(`)`)
}

// Reroute moves the next deliveries; see store.Rerouter.
func (s *Store) Reroute(ctx context.Context, b store.RerouteBatch) (store.RerouteResult, error) {
	if s.system.Load() == nil { // or asking for it in vain would end the transaction
		if _, err := s.Probe(ctx); err != nil {
			return store.RerouteResult{}, err
		}
	}
	result, err := s.reroute(ctx, b)
	if err != nil {
		return store.RerouteResult{}, fmt.Errorf("reroute: %w", advise(err))
	}
	return result, nil
}

// reroute takes the cursors of all sinks first, in the order of their names, as
// checkpoints and other batches take those of one.
func (s *Store) reroute(ctx context.Context, b store.RerouteBatch) (result store.RerouteResult, err error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return result, err
	}
	defer func() { _ = tx.Rollback() }() // of no effect behind the commit
	sinks := slices.Sorted(maps.Keys(b.Sinks))
	_, err = tx.ExecContext(ctx,
		`WITH held AS (SELECT sink, lane FROM `+s.sql.prefix+`_cursors WHERE sink = ANY($1::text[]) ORDER BY sink, lane FOR UPDATE)
		UPDATE `+s.sql.prefix+`_cursors c SET revision = revision + 1 FROM held WHERE c.sink = held.sink AND c.lane = held.lane`,
		pq.Array(append(slices.Clone(sinks), store.SinkUnrouted)))
	if err != nil {
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
	offsets, ids := split(refsOf(moved, notification.AllTypes))
	if _, err = tx.ExecContext(ctx,
		`DELETE FROM `+s.sql.prefix+`_parked WHERE sink = $1 AND ("offset", id) IN (SELECT * FROM unnest($2::bigint[], $3::text[]))`,
		store.SinkUnrouted, pq.Array(offsets), pq.Array(ids)); err != nil {
		return result, err
	}
	if err := s.count(ctx, tx, b.Action, len(moved)); err != nil {
		return result, err
	}
	// Forwarders that listen look at the membership at once.
	if _, err := tx.ExecContext(ctx, `SELECT pg_notify($1, $2)`, s.listening.channel, lanesNews); err != nil {
		return result, err
	}
	return result, tx.Commit()
}

// unroutedRow is a delivery to be moved.
type unroutedRow struct {
	store.Ref
	typ string
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
	q := &statement{}
	q.WriteString(`SELECT "offset", id, type FROM ` + s.sql.prefix + `_parked p WHERE true`)
	s.rerouteSQL(q, b.RerouteQuery)
	q.WriteString(` AND ("offset", id) > (` + q.arg(b.After.Offset) + `, ` + q.arg(b.After.ID) + `) ORDER BY "offset", id LIMIT ` + q.arg(b.Limit))
	rows, err := tx.QueryContext(ctx, q.String(), q.args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var u unroutedRow
		if err := rows.Scan(&u.Offset, &u.ID, &u.typ); err != nil {
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
		refs := refsOf(found, b.Sinks[sink])
		if len(refs) == 0 {
			continue
		}
		all, err := s.stands(ctx, tx, sink)
		if err != nil {
			return nil, err
		}
		now, err := s.look(ctx, tx, s.sql.probe)
		if err != nil {
			return nil, err
		}
		if err := s.checkStands(ctx, all, now, sink); err != nil {
			return nil, err
		}
		if err := s.addUnsettled(ctx, tx, all, refs, early); err != nil {
			return nil, err
		}
	}
	return early, nil
}

func (s *Store) addUnsettled(ctx context.Context, tx *sql.Tx, all []stand, refs []store.Ref, early map[store.Ref]bool) (err error) {
	offsets, ids := split(refs)
	q := &statement{}
	q.WriteString(`SELECT "offset", id FROM ` + s.sql.prefix + ` WHERE ("offset", id) IN (SELECT * FROM unnest(` +
		q.arg(pq.Array(offsets)) + `::bigint[], ` + q.arg(pq.Array(ids)) + `::text[])) AND NOT ` + settledByAll(q, all))
	rows, err := tx.QueryContext(ctx, q.String(), q.args...)
	if err != nil {
		return err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var ref store.Ref
		if err := rows.Scan(&ref.Offset, &ref.ID); err != nil {
			return err
		}
		early[ref] = true
	}
	return rows.Err()
}

// parkFor parks deliveries for a sink that does not have them yet.
func (s *Store) parkFor(ctx context.Context, tx *sql.Tx, sink string, refs []store.Ref, b store.RerouteBatch) error {
	if len(refs) == 0 {
		return nil
	}
	offsets, ids := split(refs)
	_, err := tx.ExecContext(ctx, fmt.Sprintf(
		`INSERT INTO %[1]s_parked (sink, `+columns+`, state, attempt, due_at)
		SELECT $1, `+columns+`, CASE WHEN scheduled THEN 'scheduled' WHEN waits THEN 'blocked' ELSE 'retrying' END, 0,
			CASE WHEN scheduled THEN due_at WHEN waits THEN NULL ELSE $5::timestamptz END
		FROM (SELECT `+columns+`, due_at, state = 'scheduled' AS scheduled,
				key <> '' AND (row_number() OVER (PARTITION BY key, state = 'scheduled' ORDER BY "offset") > 1 OR EXISTS (
					SELECT FROM %[1]s_parked b WHERE b.sink = $1 AND b.key = p.key AND b.key <> '' AND b.state IN ('retrying', 'blocked'))) AS waits
			FROM %[1]s_parked p
			WHERE sink = $2 AND ("offset", id) IN (SELECT * FROM unnest($3::bigint[], $4::text[]))
				AND NOT EXISTS (SELECT FROM %[1]s_parked b WHERE b.sink = $1 AND b."offset" = p."offset" AND b.id = p.id)
				AND NOT EXISTS (SELECT FROM %[1]s_receipts r WHERE r.sink = $1 AND r."offset" = p."offset" AND r.id = p.id)) moved`, s.sql.prefix),
		sink, store.SinkUnrouted, pq.Array(offsets), pq.Array(ids), b.DueAt)
	return err
}
