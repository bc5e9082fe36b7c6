package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// Status looks at the log, the cursors and what is parked.
func (s *Store) Status(ctx context.Context, q store.StatusQuery) (store.Status, error) {
	var status store.Status
	last, err := s.Probe(ctx)
	if err != nil {
		return status, err
	}
	status.LastOffset = last.Last()
	if status.Cursors, err = s.cursorStatus(ctx, q); err != nil {
		return status, fmt.Errorf("status of the cursors: %w", err)
	}
	if status.Parked, err = s.parkedCounts(ctx); err != nil {
		return status, fmt.Errorf("status of what is parked: %w", err)
	}
	if status.Oldest, err = s.oldest(ctx, 0); err != nil {
		return status, fmt.Errorf("status of the log: %w", err)
	}
	if status.Holders, err = s.Holders(ctx, nil); err != nil {
		return status, err
	}
	return status, nil
}

// cursor is a row of the cursors' table with what is needed to count on.
type cursor struct {
	store.CursorStatus
	slots   store.SlotRange
	pos     position
	settled []store.OffsetRange
}

func (s *Store) cursorStatus(ctx context.Context, q store.StatusQuery) ([]store.CursorStatus, error) {
	cursors, err := s.cursors(ctx)
	if err != nil {
		return nil, err
	}
	status := make([]store.CursorStatus, len(cursors))
	for i := range cursors {
		c := &cursors[i]
		types, named := q.TypesOf(c.Sink)
		if c.Pending, err = s.pending(ctx, c, types); err != nil {
			return nil, err
		}
		c.AllTypes = !named
		status[i] = c.CursorStatus
	}
	return status, nil
}

func (s *Store) cursors(ctx context.Context) (cursors []cursor, err error) {
	rows, err := s.db.QueryContext(ctx,
		`SELECT sink, lane, lanes, position, settled, CASE WHEN lease_until > `+now+` THEN owner ELSE '' END, epoch, lease_until, paused, updated_at
		FROM `+s.prefix+`_cursors WHERE sink <> ? ORDER BY sink, lane`, store.SinkPruner)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		c, err := scanCursor(rows)
		if err != nil {
			return nil, err
		}
		cursors = append(cursors, c)
	}
	return cursors, rows.Err()
}

func scanCursor(rows *sql.Rows) (c cursor, err error) {
	var (
		lanes              int
		position           sql.NullString
		settled, updatedAt string
		leaseUntil         sql.NullString
	)
	if err := rows.Scan(&c.Sink, &c.Lane, &lanes, &position, &settled, &c.Owner, &c.Epoch, &leaseUntil, &c.Paused, &updatedAt); err != nil {
		return c, err
	}
	c.slots = store.NewLane(c.Sink, c.Lane, lanes).Slots
	if c.pos, err = parsePosition([]byte(position.String)); err != nil {
		return c, err
	}
	if c.settled, err = store.DecodeOffsets(settled); err != nil {
		return c, err
	}
	if c.LeaseUntil, err = parseNullTime(leaseUntil); err != nil {
		return c, err
	}
	c.UpdatedAt, err = parseTime(updatedAt)
	return c, err
}

// pending counts the rows of some types behind a cursor that are not settled.
func (s *Store) pending(ctx context.Context, c *cursor, types notification.TypeFilter) (int, error) {
	if c.slots.First > 0 {
		return 0, nil // all rows are in slot 0
	}
	where, args, err := typeCondition(types)
	if err != nil {
		return 0, err
	}
	args = append(append([]any{int64(c.pos)}, args...), store.PendingLimit+store.CountOffsets(c.settled))
	var rows int
	err = s.db.QueryRowContext(ctx,
		`SELECT count(*) FROM (SELECT 1 FROM `+s.prefix+` WHERE "offset" > ?`+where+` LIMIT ?)`, args...).Scan(&rows)
	return max(0, rows-int(store.CountOffsets(c.settled))), err
}

func (s *Store) parkedCounts(ctx context.Context) (counts []store.ParkedCount, err error) {
	rows, err := s.db.QueryContext(ctx,
		`SELECT sink, state, count(*) FROM `+s.prefix+`_parked GROUP BY sink, state ORDER BY sink, state`)
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
