package looks

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// ReceiptsOf returns the receipts of rows; see store.Inspector.
func (t *Looks) ReceiptsOf(ctx context.Context, refs []store.Ref) ([]store.TracedReceipt, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	receipts, err := t.readReceipts(ctx, ReceiptsQuery(t.run, refs))
	if err != nil {
		return nil, t.run.Failed(err, "read receipts")
	}
	slices.SortFunc(receipts, func(a, b store.TracedReceipt) int {
		return cmp.Or(cmp.Compare(a.Offset, b.Offset), strings.Compare(a.ID, b.ID), strings.Compare(a.Sink, b.Sink))
	})
	return receipts, nil
}

// ReceiptsQuery is the query of ReceiptsOf.
func ReceiptsQuery(r *tables.Runner, refs []store.Ref) tables.Expr {
	return receiptsQuery(tables.SQL(`("offset", id) IN (?)`, r.Dialect.Refs(refs)))
}

func receiptsQuery(where tables.Expr) tables.Expr {
	return tables.SQL(`SELECT sink, "offset", id, receipt, attempt, delivered_at FROM {receipts} WHERE ? {whole receipts}`, where)
}

// readReceipts reads receipts in no particular order.
func (t *Looks) readReceipts(ctx context.Context, query tables.Expr) ([]store.TracedReceipt, error) {
	return tables.List(ctx, t.run, t.run.DB, func(rows *sql.Rows, r *store.TracedReceipt) error {
		return rows.Scan(&r.Sink, &r.Offset, &r.ID, &r.Receipt.Receipt, &r.Attempt, t.run.Into(&r.DeliveredAt))
	}, `?`, query)
}
