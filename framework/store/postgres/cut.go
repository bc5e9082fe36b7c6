package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"github.com/lib/pq"

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

// cut tries again where somebody else makes cursors, or makes them anew, between two
// of its statements. None of these locks the table: behind a lock that waits for one
// cursor, the checkpoints of all others would wait too.
func (s *Store) cut(ctx context.Context, sink string, lanes int) error {
	for {
		var exist, differ bool
		err := s.db.QueryRowContext(ctx,
			`SELECT count(*) > 0, coalesce(bool_or(wanted IS DISTINCT FROM nullif($2::smallint, lanes)), false)
			FROM `+s.sql.prefix+`_cursors WHERE sink = $1`, sink, lanes).Scan(&exist, &differ)
		if err != nil || exist && !differ {
			return err
		}
		query := s.createSQL()
		if exist {
			query = `UPDATE ` + s.sql.prefix + `_cursors SET wanted = nullif($2::smallint, lanes)
				WHERE sink = $1 AND wanted IS DISTINCT FROM nullif($2::smallint, lanes)`
		}
		result, err := s.db.ExecContext(ctx, query, sink, lanes)
		if pq.As(err, "40001") != nil { // where transactions are repeatable reads by default
			continue
		}
		if err != nil {
			return err
		}
		if written, err := result.RowsAffected(); err != nil || written > 0 {
			return err
		}
	}
}

// createSQL makes the cursors of a sink that has none. Of several who do that at once
// only one makes the first lane's, which every sink has, and then it makes the others.
func (s *Store) createSQL() string {
	return `WITH first AS (
			INSERT INTO ` + s.sql.prefix + `_cursors (sink, lane, lanes) VALUES ($1, 0, $2::smallint)
			ON CONFLICT DO NOTHING RETURNING sink, lane, lanes),
		others AS (
			INSERT INTO ` + s.sql.prefix + `_cursors (sink, lane, lanes)
			SELECT sink, number, lanes FROM first, generate_series(1, lanes - 1) AS number)
		SELECT FROM first`
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
	if _, err := tx.ExecContext(ctx, `SET LOCAL idle_in_transaction_session_timeout = `+strconv.FormatInt(idleTime.Milliseconds(), 10)); err != nil {
		return err
	}
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
