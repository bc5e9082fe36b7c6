package sqlite

import (
	"context"
	"encoding/json"
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// Waiting counts what follows the position, and finds the oldest of it.
func (d *dialect) Waiting(ctx context.Context, raw json.RawMessage, _ store.Target, filter store.Filter, limit int) (n int, oldest time.Time, err error) {
	pos, err := parsePosition(raw)
	if err != nil || filter.Slots.First > 0 { // all rows are in slot 0
		return 0, oldest, err
	}
	first := tables.NewTime(d)
	err = d.run.Row(ctx, d.db, `SELECT count(*), min(occurred_on) FROM (SELECT occurred_on FROM {log} WHERE "offset" > ? AND ? LIMIT ?) waiting`,
		int64(pos), typeCondition(filter.Types), limit).Scan(&n, &first)
	return n, first.Time, err
}

// Extent is the size of the file. Transactions of other processes cannot be seen.
func (d *dialect) Extent(ctx context.Context) (bytes int64, _ time.Duration, err error) {
	err = d.db.QueryRowContext(ctx, `SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()`).Scan(&bytes)
	return bytes, 0, err
}
