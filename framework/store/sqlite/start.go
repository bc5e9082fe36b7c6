package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// Beginning returns an offset. Rows up to the highest offset assigned are committed, and none is added
// below it.
func (d *dialect) Beginning(ctx context.Context, since time.Time) (at tables.Beginning, err error) {
	last, err := d.last(ctx, d.db)
	if err != nil {
		return at, err
	}
	if !since.IsZero() {
		var first sql.NullInt64
		err := d.run.Row(ctx, d.db, `SELECT min("offset") FROM {log} WHERE `+d.LogTime(`occurred_on`)+` >= `+d.LogTime(`?`), d.BindTime(since)).Scan(&first)
		if err != nil {
			return at, err
		}
		if first.Valid {
			last = first.Int64 - 1
		}
	}
	if at.Position, err = position(last).MarshalJSON(); err != nil {
		return at, err
	}
	err = d.run.Row(ctx, d.db, `SELECT count(*) FROM (SELECT 1 FROM {log} WHERE "offset" <= ? {limit} ?) passed`, last, store.PendingLimit).Scan(&at.Passed)
	return at, err
}
