package sqlite

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// Waiting returns the rows after the position of the first lane: all rows are in slot 0.
func (d *dialect) Waiting(lanes []tables.WaitingLane, t store.Target, types notification.TypeFilter) (spans []tables.WaitingSpan, err error) {
	for i, l := range lanes {
		pos, err := parsePosition(l.Position)
		if err != nil {
			return nil, err
		}
		if l.Lane.Slots.First > 0 {
			continue
		}
		count := func(ctx context.Context, after, last int64, limit int, found func(lane int, w tables.Waiting)) error {
			var w tables.Waiting
			err := d.run.Row(ctx, d.db, `SELECT count(*), min(occurred_on), coalesce(max("offset"), 0) FROM (SELECT occurred_on, "offset" FROM {log} WHERE "offset" > ? AND "offset" <= ? AND ? ORDER BY "offset" {limit} ?) waiting`,
				after, last, typeCondition(types), limit).Scan(&w.Rows, d.run.Into(&w.Oldest), &w.Through)
			if w.Rows > 0 {
				found(i, w)
			}
			return err
		}
		spans = append(spans, tables.WaitingSpan{After: int64(pos), Last: t.Last(), Count: count})
	}
	return spans, nil
}

// Extent returns the size of the file. Transactions of other processes cannot be seen.
func (d *dialect) Extent(ctx context.Context) (bytes int64, _ time.Duration, err error) {
	err = d.db.QueryRowContext(ctx, `SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()`).Scan(&bytes)
	return bytes, 0, err
}
