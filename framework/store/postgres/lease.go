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
	var lanes sql.NullInt64
	err := s.db.QueryRowContext(ctx,
		`SELECT max(lanes) FROM `+s.sql.prefix+`_cursors WHERE sink = $1 AND lanes <> $2`, lane.Sink, lane.Of).Scan(&lanes)
	if err != nil {
		return store.Lease{}, fmt.Errorf("lease %s/%d: %w", lane.Sink, lane.Number, advise(err))
	}
	if lanes.Valid {
		return store.Lease{}, fmt.Errorf("%w: sink %s has cursors for %d lanes and the configuration says %d: set outbox.lanes back to %d",
			store.ErrLanes, lane.Sink, lanes.Int64, lane.Of, lanes.Int64)
	}

	lease := store.Lease{Lane: lane, Owner: owner}
	var position, settled sql.NullString
	err = s.db.QueryRowContext(ctx,
		`INSERT INTO `+s.sql.prefix+`_cursors AS c (sink, lane, lanes, owner, epoch, lease_until)
		VALUES ($1, $2, $3, $4, 1, clock_timestamp() + $5 * interval '1 microsecond')
		ON CONFLICT (sink, lane) DO UPDATE SET
			owner = EXCLUDED.owner, epoch = c.epoch + 1, checkpoint = 0, lease_until = EXCLUDED.lease_until, updated_at = clock_timestamp()
		WHERE c.owner IS NULL OR c.lease_until <= clock_timestamp()
		RETURNING epoch, position::text, settled`,
		lane.Sink, lane.Number, lane.Of, owner, ttl.Microseconds()).Scan(&lease.Epoch, &position, &settled)
	if errors.Is(err, sql.ErrNoRows) || pq.As(err, "40001") != nil { // the latter where transactions are repeatable reads by default
		return store.Lease{}, fmt.Errorf("%w: %s/%d", store.ErrLeaseHeld, lane.Sink, lane.Number)
	}
	if err != nil {
		return store.Lease{}, fmt.Errorf("lease %s/%d: %w", lane.Sink, lane.Number, advise(err))
	}
	if position.Valid {
		lease.Position = []byte(position.String)
	}
	if lease.Settled, err = store.DecodeOffsets(settled.String); err != nil {
		return store.Lease{}, fmt.Errorf("lease %s/%d: %w", lane.Sink, lane.Number, err)
	}
	return lease, nil
}

// Release gives a lease back; see store.Store.
func (s *Store) Release(ctx context.Context, lease store.Lease) error {
	_, err := s.db.ExecContext(ctx,
		`UPDATE `+s.sql.prefix+`_cursors SET owner = NULL, lease_until = NULL, updated_at = clock_timestamp()
		WHERE sink = $1 AND lane = $2 AND owner = $3 AND epoch = $4`,
		lease.Lane.Sink, lease.Lane.Number, lease.Owner, lease.Epoch)
	if err != nil {
		return fmt.Errorf("release %s/%d: %w", lease.Lane.Sink, lease.Lane.Number, advise(err))
	}
	return nil
}
