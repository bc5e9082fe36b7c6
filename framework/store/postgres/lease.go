package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store"
)

// Acquire leases a lane; see store.Store.
func (s *Store) Acquire(ctx context.Context, lane store.Lane, owner string, ttl time.Duration) (store.Lease, error) {
	lease, err := s.acquire(ctx, lane, owner, ttl)
	if err != nil {
		return store.Lease{}, fmt.Errorf("lease %s/%d: %w", lane.Sink, lane.Number, advise(err))
	}
	return lease, nil
}

// acquire also makes the lease's transaction a fence: without, the first delta of a
// cursor would leave no bound, and the second look through the whole log.
func (s *Store) acquire(ctx context.Context, lane store.Lane, owner string, ttl time.Duration) (store.Lease, error) {
	lease := store.Lease{Lane: lane, Owner: owner}
	seen, err := s.seen(ctx)
	if err != nil {
		return lease, err
	}
	var id string
	var position, settled sql.NullString
	err = s.db.QueryRowContext(ctx,
		`UPDATE `+s.sql.prefix+`_cursors SET owner = $4, epoch = epoch + 1, checkpoint = 0,
			lease_until = clock_timestamp() + $5 * interval '1 microsecond', updated_at = clock_timestamp()
		WHERE sink = $1 AND lane = $2 AND lanes = $3 AND (owner IS NULL OR owner = $4 OR lease_until <= clock_timestamp())
		RETURNING epoch, position::text, settled, pg_current_xact_id()::text, `+s.sql.server,
		lane.Sink, lane.Number, lane.Of, owner, ttl.Microseconds()).Scan(&lease.Epoch, &position, &settled, &id, &lease.Server)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return lease, s.whyNoLease(ctx, lane)
	case pq.As(err, "40001") != nil: // where transactions are repeatable reads by default
		return lease, store.ErrLeaseHeld
	case err != nil:
		return lease, err
	}
	if position.Valid {
		lease.Position = []byte(position.String)
	}
	if lease.Settled, err = store.DecodeOffsets(settled.String); err != nil {
		return lease, err
	}
	return lease, s.raiseFence(id, lease.Server, seen)
}

// whyNoLease tells a lane that somebody holds from one that does not exist.
func (s *Store) whyNoLease(ctx context.Context, lane store.Lane) error {
	var exists bool
	err := s.db.QueryRowContext(ctx,
		`SELECT EXISTS (SELECT FROM `+s.sql.prefix+`_cursors WHERE sink = $1 AND lane = $2 AND lanes = $3)`,
		lane.Sink, lane.Number, lane.Of).Scan(&exists)
	switch {
	case err != nil:
		return err
	case exists:
		return store.ErrLeaseHeld
	}
	return store.ErrLanes
}

// Release gives a lease back and tells the other forwarders; see store.Store.
func (s *Store) Release(ctx context.Context, lease store.Lease) error {
	_, err := s.db.ExecContext(ctx,
		`WITH released AS (
			UPDATE `+s.sql.prefix+`_cursors SET owner = NULL, lease_until = NULL, updated_at = clock_timestamp()
			WHERE sink = $1 AND lane = $2 AND owner = $3 AND epoch = $4 RETURNING sink)
		SELECT pg_notify($5, $6) FROM released`,
		lease.Lane.Sink, lease.Lane.Number, lease.Owner, lease.Epoch, s.listening.channel, lanesNews)
	if err != nil {
		return fmt.Errorf("release %s/%d: %w", lease.Lane.Sink, lease.Lane.Number, advise(err))
	}
	return nil
}
