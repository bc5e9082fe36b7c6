package tables

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// Oldest returns the first row of the log after an offset, or nil.
func (r *Runner) Oldest(ctx context.Context, q Querier, after int64) (*store.Row, error) {
	return r.ScanRow(r.Row(ctx, q, `SELECT "offset", occurred_on FROM {log} WHERE "offset" > ? ORDER BY "offset" LIMIT 1 {whole log}`, after))
}

// ScanRow reads the columns "offset" and occurred_on; nil if there is no row.
func (r *Runner) ScanRow(row *sql.Row) (*store.Row, error) {
	var first store.Row
	occurredOn := r.time()
	switch err := row.Scan(&first.Offset, &occurredOn); {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	}
	first.OccurredOn = occurredOn.Time
	return &first, nil
}

// PruneReceipts removes old receipts; see store.Pruner. It reads the clock in a separate query:
// PostgreSQL does not use an index for an expression that it must evaluate for each row.
func (t *Tables) PruneReceipts(ctx context.Context, age time.Duration, limit int) (int, error) {
	removed, err := t.run.Exec(ctx, t.db, `DELETE FROM {receipts} WHERE (sink, "offset", id) IN (SELECT sink, "offset", id FROM (
		SELECT sink, "offset", id FROM {receipts} WHERE delivered_at <= (SELECT ?) ORDER BY delivered_at LIMIT ?) old)`, t.dialect.NowPlus(-age), limit)
	if err != nil {
		return 0, t.failed(err, "remove old receipts")
	}
	return int(removed), nil
}
