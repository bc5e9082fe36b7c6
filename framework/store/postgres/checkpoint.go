package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store"
)

// Checkpoint writes what was settled; see store.Store. Where only the cursor
// moves, which is the usual case, it is one statement and one round trip.
func (s *Store) Checkpoint(ctx context.Context, c store.Checkpoint) error {
	if err := s.checkpoint(ctx, c); err != nil {
		return fmt.Errorf("checkpoint %s/%d: %w", c.Lease.Lane.Sink, c.Lease.Lane.Number, advise(err))
	}
	return nil
}

func (s *Store) checkpoint(ctx context.Context, c store.Checkpoint) error {
	seen, err := s.seen(ctx) // before the transaction has its id: see fence
	if err != nil {
		return err
	}
	receipts := c.Receipts
	if !s.receipts {
		receipts = nil
	}
	if len(c.Park) == 0 && len(c.Unpark) == 0 && len(receipts) == 0 && c.InTx == nil {
		id, err := s.moveCursor(ctx, s.db, c)
		if err != nil || id == "" {
			return err
		}
		return s.raiseFence(id, c.Lease.Server, seen)
	}

	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // of no effect behind the commit
	id, err := s.moveCursor(ctx, tx, c)
	if err != nil || id == "" {
		return err
	}
	if err := s.unpark(ctx, tx, c.Lease.Lane.Sink, c.Unpark); err != nil {
		return err
	}
	if err := s.park(ctx, tx, c.Lease.Lane.Sink, c.Park); err != nil {
		return err
	}
	if err := s.archive(ctx, tx, c.Lease.Lane.Sink, receipts); err != nil {
		return err
	}
	if c.InTx != nil {
		if err := c.InTx(ctx, tx); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return s.raiseFence(id, c.Lease.Server, seen)
}

// querier is a database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// moveCursor writes the cursor and renews the lease if the epoch still holds, and
// returns the id of the transaction that it runs in; "" if the checkpoint is
// written already. It also has the server end the transaction if nobody goes on with
// it for the time of the lease: one whose client is gone without a word would hold
// the cursor's row for hours, and no forwarder could have the lane.
func (s *Store) moveCursor(ctx context.Context, q querier, c store.Checkpoint) (id string, err error) {
	var position []byte
	if c.Position != nil {
		if position, err = c.Position.MarshalJSON(); err != nil {
			return "", err
		}
	}
	err = q.QueryRowContext(ctx,
		`UPDATE `+s.sql.prefix+`_cursors SET
			position = coalesce($5::jsonb, position),
			settled = CASE WHEN $5::jsonb IS NULL THEN settled ELSE $6 END, updated_at = clock_timestamp(),
			lease_until = clock_timestamp() + $7 * interval '1 microsecond', checkpoint = greatest(checkpoint, $8)
		WHERE sink = $1 AND lane = $2 AND owner = $3 AND epoch = $4 AND (checkpoint < $8 OR $8 = 0) AND `+s.sql.server+` = $10
		RETURNING pg_current_xact_id()::text || left(set_config('idle_in_transaction_session_timeout', $9, true), 0)`,
		c.Lease.Lane.Sink, c.Lease.Lane.Number, c.Lease.Owner, c.Lease.Epoch,
		sql.NullString{String: string(position), Valid: position != nil},
		store.EncodeOffsets(c.Settled), c.TTL.Microseconds(), c.Number,
		strconv.FormatInt(c.TTL.Milliseconds(), 10), c.Lease.Server).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", s.whyUnmoved(ctx, q, c)
	}
	return id, err
}

// whyUnmoved tells a checkpoint that is written already, which is no error, from a
// lease that is lost, or whose server has gone.
func (s *Store) whyUnmoved(ctx context.Context, q querier, c store.Checkpoint) error {
	var same, written bool
	err := q.QueryRowContext(ctx,
		`SELECT `+s.sql.server+` = $6, checkpoint >= $5 FROM `+s.sql.prefix+`_cursors WHERE sink = $1 AND lane = $2 AND owner = $3 AND epoch = $4`,
		c.Lease.Lane.Sink, c.Lease.Lane.Number, c.Lease.Owner, c.Lease.Epoch, c.Number, c.Lease.Server).Scan(&same, &written)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return store.ErrLeaseLost
	case err == nil && !same:
		return store.ErrServerChanged
	}
	return err
}

func (s *Store) unpark(ctx context.Context, tx *sql.Tx, sink string, refs []store.Ref) error {
	if len(refs) == 0 {
		return nil
	}
	offsets, ids := split(refs)
	_, err := tx.ExecContext(ctx,
		`DELETE FROM `+s.sql.prefix+`_parked p USING unnest($2::bigint[], $3::text[]) AS r("offset", id)
		WHERE p.sink = $1 AND p."offset" = r."offset" AND p.id = r.id`, sink, pq.Array(offsets), pq.Array(ids))
	return err
}

// split gives references as two lists of the same length, never nil.
func split(refs []store.Ref) (offsets []int64, ids []string) {
	offsets, ids = make([]int64, len(refs)), make([]string, len(refs))
	for i, r := range refs {
		offsets[i], ids[i] = r.Offset, r.ID
	}
	return offsets, ids
}

// chunkRows keeps a statement of many rows far below the limit of parameters.
const chunkRows = 1000

func (s *Store) park(ctx context.Context, tx *sql.Tx, sink string, parked []store.Parked) error {
	for chunk := range slices.Chunk(parked, chunkRows) {
		q := statement{}
		q.WriteString(`INSERT INTO ` + s.sql.prefix + `_parked
			(sink, "offset", slot, id, type, version, key, occurred_on, deliver_at, metadata, payload,
			state, attempt, due_at, last_error, first_parked_at) VALUES `)
		for i := range chunk {
			p := &chunk[i]
			e := &p.Envelope
			metadata, err := store.EncodeMetadata(e.Metadata)
			if err != nil {
				return err
			}
			if i > 0 {
				q.WriteString(", ")
			}
			q.row(sink, e.Offset, e.Slot, e.ID, e.Type, e.Version, e.Key, e.OccurredOn, nullTime(e.DeliverAt),
				metadata, payloadArg(e.Payload, s.binary),
				string(p.State), p.Attempt, nullTime(p.DueAt), p.LastError, p.FirstParkedAt)
		}
		q.WriteString(` ON CONFLICT (sink, "offset", id) DO UPDATE SET
			state = EXCLUDED.state, attempt = EXCLUDED.attempt, due_at = EXCLUDED.due_at,
			last_error = EXCLUDED.last_error, updated_at = clock_timestamp()
			WHERE EXCLUDED.state <> 'blocked'`)
		if _, err := tx.ExecContext(ctx, q.String(), q.args...); err != nil {
			return fmt.Errorf("park: %w", err)
		}
	}
	return nil
}

func (s *Store) archive(ctx context.Context, tx *sql.Tx, sink string, receipts []store.Receipt) error {
	for chunk := range slices.Chunk(receipts, chunkRows) {
		q := statement{}
		q.WriteString(`INSERT INTO ` + s.sql.prefix + `_receipts (sink, "offset", id, receipt, attempt, delivered_at) VALUES `)
		for i, r := range chunk {
			if i > 0 {
				q.WriteString(", ")
			}
			q.row(sink, r.Offset, r.ID, string(r.Receipt), r.Attempt, r.DeliveredAt)
		}
		// A repeat after a crash leaves the first receipt, which is the delivery's.
		q.WriteString(` ON CONFLICT (sink, "offset", id) DO NOTHING`)
		if _, err := tx.ExecContext(ctx, q.String(), q.args...); err != nil {
			return fmt.Errorf("archive receipts: %w", err)
		}
	}
	return nil
}
