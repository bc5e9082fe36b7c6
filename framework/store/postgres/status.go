package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// Status looks at the log, the cursors and what is parked.
func (s *Store) Status(ctx context.Context, q store.StatusQuery) (store.Status, error) {
	var status store.Status
	target, err := s.Probe(ctx)
	if err != nil {
		return status, err
	}
	status.LastOffset = target.Last()
	if err := s.cursorStatus(ctx, q, target.(*probe), &status); err != nil {
		return status, fmt.Errorf("status of the cursors: %w", err)
	}
	if err := s.parkedCounts(ctx, &status); err != nil {
		return status, fmt.Errorf("status of what is parked: %w", err)
	}
	if status.Oldest, err = s.oldest(ctx, s.db); err != nil {
		return status, fmt.Errorf("status of the log: %w", err)
	}
	if status.Holders, err = s.Holders(ctx, nil); err != nil {
		return status, err
	}
	return status, nil
}

func (s *Store) cursorStatus(ctx context.Context, q store.StatusQuery, t *probe, status *store.Status) (err error) {
	rows, err := s.db.QueryContext(ctx,
		`SELECT sink, lane, lanes, position::text, settled, CASE WHEN lease_until > clock_timestamp() THEN owner ELSE '' END, epoch, lease_until, paused, updated_at
		FROM `+s.sql.prefix+`_cursors WHERE sink <> $1 ORDER BY sink, lane`, store.SinkPruner)
	if err != nil {
		return err
	}
	defer func() { err = closeRows(rows, err) }()

	type cursor struct {
		store.CursorStatus
		lanes             int
		position, settled sql.NullString
		until             sql.NullTime
	}
	var cursors []cursor
	for rows.Next() {
		var c cursor
		if err := rows.Scan(&c.Sink, &c.Lane, &c.lanes, &c.position, &c.settled, &c.Owner, &c.Epoch, &c.until, &c.Paused, &c.UpdatedAt); err != nil {
			return err
		}
		c.LeaseUntil = c.until.Time
		cursors = append(cursors, c)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, c := range cursors {
		lane := store.NewLane(c.Sink, c.Lane, c.lanes)
		settled, err := store.DecodeOffsets(c.settled.String)
		if err != nil {
			return err
		}
		ahead := int(store.CountOffsets(settled))
		limit := store.PendingLimit + ahead
		types, named := q.TypesOf(c.Sink)
		pending, err := s.pending(ctx, []byte(c.position.String), t, store.Filter{Slots: lane.Slots, Types: types}, limit)
		if err != nil {
			return err
		}
		c.Pending, c.AllTypes = max(0, pending-ahead), !named
		status.Cursors = append(status.Cursors, c.CursorStatus)
	}
	return nil
}

// pending counts the rows between a position and a target, up to a limit.
func (s *Store) pending(ctx context.Context, raw json.RawMessage, t *probe, filter store.Filter, limit int) (int, error) {
	pos, err := parsePosition(raw)
	if err != nil {
		return 0, err
	}
	if pos.history.differs(t.history) != "" {
		pos = position{base: &origin} // the forwarder will read it anew
	}
	r := &reader{store: s, filter: filter, pos: pos}
	total := 0
	if r.pos.delta != nil {
		if total, err = r.count(ctx, limit); err != nil {
			return 0, err
		}
		r.pos = position{base: &r.pos.delta.Until}
	}
	if r.begin(t) {
		rest, err := r.count(ctx, limit)
		if err != nil {
			return 0, err
		}
		total += rest
	}
	return min(total, limit), nil
}

// count counts what is left of the reader's delta, up to a limit.
func (r *reader) count(ctx context.Context, limit int) (int, error) {
	d := r.pos.delta
	q := statement{args: []any{r.pos.offset, d.Last}}
	q.WriteString(`SELECT count(*) FROM (SELECT FROM ` + r.store.sql.prefix + r.store.sql.between)
	r.where(&q, d)
	q.WriteString(` LIMIT ` + q.arg(limit) + `) pending`)
	var n int
	err := r.store.db.QueryRowContext(ctx, q.String(), q.args...).Scan(&n)
	return n, err
}

func (s *Store) parkedCounts(ctx context.Context, status *store.Status) (err error) {
	rows, err := s.db.QueryContext(ctx,
		`SELECT sink, state, count(*) FROM `+s.sql.prefix+`_parked GROUP BY sink, state ORDER BY sink, state`)
	if err != nil {
		return err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var c store.ParkedCount
		if err := rows.Scan(&c.Sink, &c.State, &c.Count); err != nil {
			return err
		}
		status.Parked = append(status.Parked, c)
	}
	return rows.Err()
}
