package tables

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"

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

// Oldest returns the first row of the log; see store.Inspector.
func (t *Tables) Oldest(ctx context.Context) (*store.Row, error) {
	row, err := t.run.Oldest(ctx, t.db, 0)
	if err != nil {
		return nil, t.failed(err, "look for the oldest row")
	}
	return row, nil
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
