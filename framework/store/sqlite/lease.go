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

func (s *Store) acquire(ctx context.Context, lane store.Lane, owner string, ttl time.Duration) (store.Lease, error) {
	lease := store.Lease{Lane: lane, Owner: owner}
	var position sql.NullString
	var settled string
	err := s.db.QueryRowContext(ctx,
		`UPDATE `+s.prefix+`_cursors SET
			owner = ?, epoch = epoch + 1, checkpoint = 0, lease_until = `+nowPlus+`, updated_at = `+now+`
		WHERE sink = ? AND lane = ? AND lanes = ? AND (owner IS NULL OR owner = ? OR lease_until <= `+now+`)
		RETURNING epoch, position, settled`,
		owner, milliseconds(ttl), lane.Sink, lane.Number, lane.Of, owner).Scan(&lease.Epoch, &position, &settled)
	if errors.Is(err, sql.ErrNoRows) {
		return lease, s.whyNoLease(ctx, lane)
	}
	if err != nil {
		return lease, err
	}
	if position.Valid {
		lease.Position = []byte(position.String)
	}
	lease.Settled, err = store.DecodeOffsets(settled)
	return lease, err
}

// whyNoLease tells a lane that somebody holds from one that does not exist.
func (s *Store) whyNoLease(ctx context.Context, lane store.Lane) error {
	var exists bool
	err := s.db.QueryRowContext(ctx,
		`SELECT EXISTS (SELECT 1 FROM `+s.prefix+`_cursors WHERE sink = ? AND lane = ? AND lanes = ?)`,
		lane.Sink, lane.Number, lane.Of).Scan(&exists)
	switch {
	case err != nil:
		return err
	case exists:
		return store.ErrLeaseHeld
	}
	return store.ErrLanes
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
