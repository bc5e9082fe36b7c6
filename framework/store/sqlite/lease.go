package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// Acquire leases a lane; see store.Store.
func (s *Store) Acquire(ctx context.Context, lane store.Lane, owner string, ttl time.Duration) (store.Lease, error) {
	lease, err := s.acquire(ctx, lane, owner, ttl)
	if err != nil {
		return store.Lease{}, fmt.Errorf("lease %s/%d: %w", lane.Sink, lane.Number, err)
	}
	return lease, nil
}

func (s *Store) acquire(ctx context.Context, lane store.Lane, owner string, ttl time.Duration) (lease store.Lease, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return lease, err
	}
	defer func() { _ = tx.Rollback() }() // of no effect behind the commit

	lease = store.Lease{Lane: lane, Owner: owner}
	var position sql.NullString
	var settled string
	leaseErr := tx.QueryRowContext(ctx,
		`INSERT INTO `+s.prefix+`_cursors AS c (sink, lane, lanes, owner, epoch, lease_until)
		VALUES (?, ?, ?, ?, 1, `+nowPlus+`)
		ON CONFLICT (sink, lane) DO UPDATE SET
			owner = excluded.owner, epoch = c.epoch + 1, checkpoint = 0, lease_until = excluded.lease_until, updated_at = `+now+`
		WHERE c.owner IS NULL OR c.lease_until <= `+now+`
		RETURNING epoch, position, settled`,
		lane.Sink, lane.Number, lane.Of, owner, milliseconds(ttl)).Scan(&lease.Epoch, &position, &settled)
	if leaseErr != nil && !errors.Is(leaseErr, sql.ErrNoRows) {
		return lease, leaseErr
	}
	// Said even if the lease is held: waiting for it would be in vain.
	if err := s.checkLanes(ctx, tx, lane); err != nil {
		return lease, err
	}
	if leaseErr != nil {
		return lease, store.ErrLeaseHeld
	}
	if position.Valid {
		lease.Position = []byte(position.String)
	}
	if lease.Settled, err = store.DecodeOffsets(settled); err != nil {
		return lease, err
	}
	return lease, tx.Commit()
}

// checkLanes refuses a lane of another cut than that of the sink's cursors.
func (s *Store) checkLanes(ctx context.Context, tx *sql.Tx, lane store.Lane) error {
	var lanes sql.NullInt64
	err := tx.QueryRowContext(ctx,
		`SELECT max(lanes) FROM `+s.prefix+`_cursors WHERE sink = ? AND lanes <> ?`, lane.Sink, lane.Of).Scan(&lanes)
	if err != nil {
		return err
	}
	if lanes.Valid {
		return fmt.Errorf("%w: sink %s has cursors for %d lanes and the configuration says %d: set outbox.lanes back to %d",
			store.ErrLanes, lane.Sink, lanes.Int64, lane.Of, lanes.Int64)
	}
	return nil
}

// Release gives a lease back; see store.Store.
func (s *Store) Release(ctx context.Context, lease store.Lease) error {
	_, err := s.db.ExecContext(ctx,
		`UPDATE `+s.prefix+`_cursors SET owner = NULL, lease_until = NULL, updated_at = `+now+`
		WHERE sink = ? AND lane = ? AND owner = ? AND epoch = ?`,
		lease.Lane.Sink, lease.Lane.Number, lease.Owner, lease.Epoch)
	if err != nil {
		return fmt.Errorf("release %s/%d: %w", lease.Lane.Sink, lease.Lane.Number, err)
	}
	return nil
}
