package mysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// Beginning returns the current snapshot, or a place in the delta up to it. Rows of transactions that are
// still running come late, as for every cursor.
func (d *dialect) Beginning(ctx context.Context, since time.Time) (at tables.Beginning, err error) {
	now, err := d.probeAll(ctx)
	if err != nil {
		return at, err
	}
	pos := position{from: now.at}
	if !since.IsZero() {
		var first sql.NullInt64
		err := d.run.Row(ctx, d.db, `SELECT "offset" FROM {log} WHERE occurred_on >= ? AND type <> '`+VoidType+`' ORDER BY "offset" LIMIT 1`, d.Time(since)).Scan(&first)
		if err != nil && err != sql.ErrNoRows {
			return at, err
		}
		if first.Valid && first.Int64 <= now.at.top {
			pos = position{until: &now.at, offset: first.Int64 - 1}
		}
	}
	if at.Position, err = pos.MarshalJSON(); err != nil {
		return at, err
	}
	err = d.run.Row(ctx, d.db, `SELECT count(*) FROM (SELECT 1 FROM {log} WHERE ? AND type <> '`+VoidType+`' LIMIT ?) passed`,
		tables.SQL(`("offset" <= ? OR ?)`, pos.through(), pos.settled()), store.PendingLimit).Scan(&at.Passed)
	return at, err
}
