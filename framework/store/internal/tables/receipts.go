package tables

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// ReceiptsOf returns the receipts of rows; see store.Inspector.
func (t *Tables) ReceiptsOf(ctx context.Context, refs []store.Ref) ([]store.TracedReceipt, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	receipts, err := t.readReceipts(ctx, t.run.ReceiptsQuery(refs))
	if err != nil {
		return nil, t.failed(err, "read receipts")
	}
	slices.SortFunc(receipts, func(a, b store.TracedReceipt) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), strings.Compare(a.ID, b.ID), strings.Compare(a.Sink, b.Sink))
	})
	return receipts, nil
}

// ReceiptsQuery is the query of ReceiptsOf.
func (r *Runner) ReceiptsQuery(refs []store.Ref) Expr {
	return receiptsQuery(SQL(`("offset", id) IN (?)`, r.dialect.Refs(refs)))
}

func receiptsQuery(where Expr) Expr {
	return SQL(`SELECT sink, "offset", id, receipt, attempt, delivered_at FROM {receipts} WHERE ? {whole receipts}`, where)
}

// readReceipts reads receipts in no particular order.
func (t *Tables) readReceipts(ctx context.Context, query Expr) (receipts []store.TracedReceipt, err error) {
	err = t.run.Each(ctx, t.db, func(rows *sql.Rows) error {
		var r store.TracedReceipt
		at := t.run.time()
		err := rows.Scan(&r.Sink, &r.Offset, &r.ID, &r.Receipt.Receipt, &r.Attempt, &at)
		r.DeliveredAt = at.Time
		receipts = append(receipts, r)
		return err
	}, `?`, query)
	return receipts, err
}

// PruneReceipts removes old receipts; see store.Pruner. It reads the clock in a separate query:
// PostgreSQL does not use an index for an expression that it must evaluate for each row.
func (t *Tables) PruneReceipts(ctx context.Context, age time.Duration, limit int) (int, error) {
	return t.removeOld(ctx, "receipts", `DELETE FROM {receipts} WHERE (sink, "offset", id) IN (SELECT sink, "offset", id FROM (
		SELECT sink, "offset", id FROM {receipts} WHERE delivered_at <= (SELECT ?) ORDER BY delivered_at LIMIT ?) old)`, t.dialect.NowPlus(-age), limit)
}

// removeOld runs a DELETE of the pruner.
func (t *Tables) removeOld(ctx context.Context, what, text string, args ...any) (int, error) {
	removed, err := t.run.Exec(ctx, t.db, text, args...)
	if err != nil {
		return 0, t.failed(err, "remove old %s", what)
	}
	return int(removed), nil
}
