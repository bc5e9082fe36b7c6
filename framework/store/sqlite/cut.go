package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// Cut creates a sink's cursors, or notes the number that is wanted; see
// store.Store.
func (s *Store) Cut(ctx context.Context, sink string, lanes int) error {
	if err := s.cut(ctx, sink, lanes); err != nil {
		return fmt.Errorf("cut the lanes of sink %s: %w", sink, err)
	}
	return nil
}

func (s *Store) cut(ctx context.Context, sink string, lanes int) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // of no effect behind the commit
	// A write first: a handle whose transactions begin deferred waits for the
	// write lock here, with nothing read.
	_, err = tx.ExecContext(ctx,
		`UPDATE `+s.prefix+`_cursors SET wanted = nullif(?1, lanes) WHERE sink = ?2 AND wanted IS NOT nullif(?1, lanes)`, lanes, sink)
	if err != nil {
		return err
	}
	var exists bool
	if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM `+s.prefix+`_cursors WHERE sink = ?)`, sink).Scan(&exists); err != nil {
		return err
	}
	if !exists {
		if err := s.create(ctx, tx, sink, lanes, 0, sql.NullString{}, false); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (s *Store) create(ctx context.Context, tx *sql.Tx, sink string, lanes int, epoch int64, position sql.NullString, paused bool) error {
	for number := range lanes {
		_, err := tx.ExecContext(ctx, `INSERT INTO `+s.prefix+`_cursors (sink, lane, lanes, epoch, position, paused) VALUES (?, ?, ?, ?, ?, ?)`,
			sink, number, lanes, epoch, position, paused)
		if err != nil {
			return err
		}
	}
	return nil
}

// Recut cuts the lanes of a sink anew; see store.Store.
func (s *Store) Recut(ctx context.Context, sink string, leases []store.Lease) error {
	if err := s.recut(ctx, sink, leases); err != nil {
		return fmt.Errorf("cut the lanes of sink %s anew: %w", sink, err)
	}
	return nil
}

func (s *Store) recut(ctx context.Context, sink string, leases []store.Lease) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // of no effect behind the commit
	cursors, err := s.takeCursors(ctx, tx, sink)
	if err != nil {
		return err
	}
	if err := store.CheckRecut(cursors, leases); err != nil {
		return err
	}
	at := cursors[0].Position
	for _, c := range cursors {
		if !bytes.Equal(c.Position, at) {
			return fmt.Errorf("%w: one is at %s, lane %d at %s", store.ErrNotLevel, at, c.Lane, c.Position)
		}
	}
	position := sql.NullString{String: string(at), Valid: len(at) > 0}
	// The epoch goes on, so that a lease from before is none of the new lanes.
	if err := s.create(ctx, tx, sink, cursors[0].Wanted, store.LastEpoch(cursors), position, cursors[0].Paused); err != nil {
		return err
	}
	return tx.Commit()
}

// takeCursors takes the cursors of a sink away.
func (s *Store) takeCursors(ctx context.Context, tx *sql.Tx, sink string) (cursors []store.Cursor, err error) {
	rows, err := tx.QueryContext(ctx,
		`DELETE FROM `+s.prefix+`_cursors WHERE sink = ?
		RETURNING lane, coalesce(wanted, 0), coalesce(owner, ''), epoch, coalesce(position, ''), settled, paused`, sink)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var c store.Cursor
		var position string
		if err := rows.Scan(&c.Lane, &c.Wanted, &c.Owner, &c.Epoch, &position, &c.Settled, &c.Paused); err != nil {
			return nil, err
		}
		c.Position = []byte(position)
		cursors = append(cursors, c)
	}
	return cursors, rows.Err()
}
