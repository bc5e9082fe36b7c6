package sqlite

import (
	"context"

	"github.com/waybill-go/waybill/framework/store"
)

// HeldKeys lists keys that parked deliveries hold back; see store.Deliveries.
func (s *Store) HeldKeys(ctx context.Context, lane store.Lane, halt bool, after string, limit int) (held []store.HeldKey, err error) {
	if lane.Slots.First > 0 {
		return nil, nil
	}
	rows, err := s.db.QueryContext(ctx, `SELECT key, max(state <> 'blocked') FROM `+s.prefix+`_parked
		WHERE sink = ? AND key <> '' AND (state IN ('retrying', 'blocked') OR ? AND state = 'dead') AND key > ?
		GROUP BY key ORDER BY key LIMIT ?`, lane.Sink, halt, after, limit)
	if err != nil {
		return nil, err
	}
	defer func() { err = closeRows(rows, err) }()
	for rows.Next() {
		var h store.HeldKey
		if err := rows.Scan(&h.Key, &h.Head); err != nil {
			return nil, err
		}
		held = append(held, h)
	}
	return held, rows.Err()
}
