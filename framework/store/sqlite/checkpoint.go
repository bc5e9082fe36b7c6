package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// chunkRows keeps a statement of many rows far below the limit of parameters.
const chunkRows = 1000

// Checkpoint writes what was settled; see store.Store.
func (s *Store) Checkpoint(ctx context.Context, c store.Checkpoint) error {
	if err := s.checkpoint(ctx, c); err != nil {
		return fmt.Errorf("checkpoint %s/%d: %w", c.Lease.Lane.Sink, c.Lease.Lane.Number, err)
	}
	return nil
}

func (s *Store) checkpoint(ctx context.Context, c store.Checkpoint) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // of no effect behind the commit

	if moved, err := s.moveCursor(ctx, tx, c); err != nil || !moved {
		return err
	}
	if err := s.unpark(ctx, tx, c.Lease.Lane.Sink, c.Unpark); err != nil {
		return fmt.Errorf("unpark: %w", err)
	}
	if err := s.park(ctx, tx, c.Lease.Lane.Sink, c.Park); err != nil {
		return fmt.Errorf("park: %w", err)
	}
	if s.receipts {
		if err := s.archive(ctx, tx, c.Lease.Lane.Sink, c.Receipts); err != nil {
			return fmt.Errorf("archive receipts: %w", err)
		}
	}
	if c.InTx != nil {
		if err := c.InTx(ctx, tx); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// moveCursor writes the cursor and renews the lease if the epoch still holds; false
// if the checkpoint is written already. It
// is the transaction's first statement and a write, so also a handle whose
// transactions begin deferred waits for the write lock here, with nothing read.
func (s *Store) moveCursor(ctx context.Context, tx *sql.Tx, c store.Checkpoint) (moved bool, err error) {
	var position sql.NullString
	if c.Position != nil {
		raw, err := c.Position.MarshalJSON()
		if err != nil {
			return false, err
		}
		position = sql.NullString{String: string(raw), Valid: true}
	}
	result, err := tx.ExecContext(ctx,
		`UPDATE `+s.prefix+`_cursors SET
			position = coalesce(?1, position), settled = CASE WHEN ?1 IS NULL THEN settled ELSE ?2 END,
			lease_until = `+nowPlus+`, updated_at = `+now+`, checkpoint = max(checkpoint, ?4)
		WHERE (checkpoint < ?4 OR ?4 = 0) AND sink = ? AND lane = ? AND owner = ? AND epoch = ?`,
		position, store.EncodeOffsets(c.Settled), milliseconds(c.TTL), c.Number,
		c.Lease.Lane.Sink, c.Lease.Lane.Number, c.Lease.Owner, c.Lease.Epoch)
	if err != nil {
		return false, err
	}
	if rows, err := result.RowsAffected(); err != nil || rows > 0 {
		return true, err
	}
	var held bool
	err = tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM `+s.prefix+`_cursors WHERE sink = ? AND lane = ? AND owner = ? AND epoch = ?)`,
		c.Lease.Lane.Sink, c.Lease.Lane.Number, c.Lease.Owner, c.Lease.Epoch).Scan(&held)
	if err == nil && !held {
		err = store.ErrLeaseLost
	}
	return false, err
}

func (s *Store) unpark(ctx context.Context, tx *sql.Tx, sink string, refs []store.Ref) error {
	if len(refs) == 0 {
		return nil
	}
	list, err := jsonArray(pairs(refs))
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx,
		`DELETE FROM `+s.prefix+`_parked WHERE sink = ? AND ("offset", id) IN (`+eachPair+`)`, sink, list)
	return err
}

// eachPair selects what pairs lists, from a JSON array.
const eachPair = `SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)`

// pairs are references in a form for JSON.
func pairs(refs []store.Ref) [][2]any {
	list := make([][2]any, len(refs))
	for i, r := range refs {
		list[i] = [2]any{r.Offset, r.ID}
	}
	return list
}

func (s *Store) park(ctx context.Context, tx *sql.Tx, sink string, parked []store.Parked) error {
	for chunk := range slices.Chunk(parked, chunkRows) {
		var values tuples
		for i := range chunk {
			p := &chunk[i]
			e := &p.Envelope
			metadata, err := store.EncodeMetadata(e.Metadata)
			if err != nil {
				return err
			}
			firstParkedAt := p.FirstParkedAt
			if firstParkedAt.IsZero() {
				firstParkedAt = time.Now()
			}
			values.add(sink, e.Offset, e.Slot, e.ID, e.Type, e.Version, e.Key, formatTime(e.OccurredOn), nullTime(e.DeliverAt),
				metadata, notNil(e.Payload), string(p.State), p.Attempt, nullTime(p.DueAt), p.LastError, formatTime(firstParkedAt))
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO `+s.prefix+`_parked (sink, `+columns+`,
			state, attempt, due_at, last_error, first_parked_at) VALUES `+values.String()+`
			ON CONFLICT (sink, "offset", id) DO UPDATE SET
				state = excluded.state, attempt = excluded.attempt, due_at = excluded.due_at,
				last_error = excluded.last_error, updated_at = `+now+`
				WHERE excluded.state <> 'blocked'`, values.args...)
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) archive(ctx context.Context, tx *sql.Tx, sink string, receipts []store.Receipt) error {
	for chunk := range slices.Chunk(receipts, chunkRows) {
		var values tuples
		for _, r := range chunk {
			values.add(sink, r.Offset, r.ID, string(r.Receipt), r.Attempt, formatTime(r.DeliveredAt))
		}
		// A repeat after a crash leaves the first receipt, which is the delivery's.
		_, err := tx.ExecContext(ctx, `INSERT INTO `+s.prefix+`_receipts
			(sink, "offset", id, receipt, attempt, delivered_at) VALUES `+values.String()+`
			ON CONFLICT (sink, "offset", id) DO NOTHING`, values.args...)
		if err != nil {
			return err
		}
	}
	return nil
}
