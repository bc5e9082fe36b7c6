package postgres

import (
	"context"

	"github.com/waybill-go/waybill/framework/store"
)

// HeldKeys lists keys that parked deliveries hold back; see store.Deliveries.
func (s *Store) HeldKeys(ctx context.Context, lane store.Lane, halt bool, after string, limit int) (held []store.HeldKey, err error) {
	rows, err := s.db.QueryContext(ctx, `SELECT key, bool_or(state <> 'blocked') FROM `+s.sql.prefix+`_parked
		WHERE sink = $1 AND slot BETWEEN $2 AND $3 AND key <> '' AND state IN (`+holding(halt)+`) AND key COLLATE "C" > $4
		GROUP BY key ORDER BY key COLLATE "C" LIMIT $5`, lane.Sink, lane.Slots.First, lane.Slots.Last, after, limit)
	if err != nil {
		return nil, advise(err)
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
