package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// Cut creates a sink's cursors, or notes the number that is wanted; see
// store.Store.
func (s *Store) Cut(ctx context.Context, sink string, lanes int) error {
	if err := s.cut(ctx, sink, lanes); err != nil {
		return fmt.Errorf("cut the lanes of sink %s: %w", sink, advise(err))
	}
	return nil
}

func (s *Store) cut(ctx context.Context, sink string, lanes int) error {
	var now int
	err := s.db.QueryRowContext(ctx, `SELECT lanes FROM `+s.sql.prefix+`_cursors WHERE sink = $1 LIMIT 1`, sink).Scan(&now)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return s.create(ctx, sink, lanes)
	case err != nil:
		return err
	}
	_, err = s.db.ExecContext(ctx,
		`UPDATE `+s.sql.prefix+`_cursors SET wanted = nullif($2::smallint, lanes)
		WHERE sink = $1 AND wanted IS DISTINCT FROM nullif($2::smallint, lanes)`, sink, lanes)
	return err
}

// create makes the cursors of a sink that has none. The lock lets nobody else
// make some in between; publishers do not touch this table.
func (s *Store) create(ctx context.Context, sink string, lanes int) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // of no effect behind the commit
	if _, err := tx.ExecContext(ctx, `LOCK TABLE `+s.sql.prefix+`_cursors IN SHARE ROW EXCLUSIVE MODE`); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx,
		`INSERT INTO `+s.sql.prefix+`_cursors (sink, lane, lanes) SELECT $1, number, $2 FROM generate_series(0, $2 - 1) AS number
		WHERE NOT EXISTS (SELECT FROM `+s.sql.prefix+`_cursors WHERE sink = $1)`, sink, lanes)
	if err != nil {
		return err
	}
	return tx.Commit()
}

// Recut cuts the lanes of a sink anew; see store.Store.
func (s *Store) Recut(ctx context.Context, sink string, leases []store.Lease) error {
	if err := s.recut(ctx, sink, leases); err != nil {
		return fmt.Errorf("cut the lanes of sink %s anew: %w", sink, advise(err))
	}
	return nil
}

func (s *Store) recut(ctx context.Context, sink string, leases []store.Lease) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // of no effect behind the commit
	cursors, err := s.lockCursors(ctx, tx, sink)
	if err != nil {
		return err
	}
	if err := store.CheckRecut(cursors, leases); err != nil {
		return err
	}
	at, err := level(cursors)
	if err != nil {
		return err
	}
	position, err := at.MarshalJSON()
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM `+s.sql.prefix+`_cursors WHERE sink = $1`, sink); err != nil {
		return err
	}
	// The epoch goes on, so that a lease from before is none of the new lanes.
	_, err = tx.ExecContext(ctx,
		`INSERT INTO `+s.sql.prefix+`_cursors (sink, lane, lanes, epoch, position, paused)
		SELECT $1, number, $2, $3, $4::jsonb, $5 FROM generate_series(0, $2 - 1) AS number`,
		sink, cursors[0].Wanted, store.LastEpoch(cursors), string(position), cursors[0].Paused)
	if err != nil {
		return err
	}
	return tx.Commit()
}

func (s *Store) lockCursors(ctx context.Context, tx *sql.Tx, sink string) (cursors []store.Cursor, err error) {
	rows, err := tx.QueryContext(ctx,
		`SELECT lane, coalesce(wanted, 0), coalesce(owner, ''), epoch, position::text, settled, paused
		FROM `+s.sql.prefix+`_cursors WHERE sink = $1 ORDER BY lane FOR UPDATE`, sink)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var c store.Cursor
		var position sql.NullString
		if err := rows.Scan(&c.Lane, &c.Wanted, &c.Owner, &c.Epoch, &position, &c.Settled, &c.Paused); err != nil {
			return nil, err
		}
		c.Position = []byte(position.String)
		cursors = append(cursors, c)
	}
	return cursors, rows.Err()
}

// level is the one position at which all cursors stand. Bounds, floors and reach
// are facts about the log, so those of any cursor hold for all.
func level(cursors []store.Cursor) (position, error) {
	var at position
	for i, c := range cursors {
		p, err := parsePosition(c.Position)
		switch {
		case err != nil:
			return at, err
		case p.base == nil:
			return at, fmt.Errorf("%w: lane %d is inside a delta", store.ErrNotLevel, c.Lane)
		case i == 0:
			at = p
		case p.base.Snapshot.text != at.base.Snapshot.text || p.history != at.history:
			return at, fmt.Errorf("%w: lane %d is at %s, lane %d at %s", store.ErrNotLevel,
				cursors[0].Lane, at.base.Snapshot.text, c.Lane, p.base.Snapshot.text)
		}
	}
	return at, nil
}
