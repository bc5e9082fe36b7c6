package tables

import (
	"context"
	"time"
)

// PruneReceipts removes old receipts; see store.Pruner. It reads the clock in a separate query:
// PostgreSQL does not use an index for an expression that it must evaluate for each row.
func (t *Tables) PruneReceipts(ctx context.Context, age time.Duration, limit int) (int, error) {
	return t.removeOld(ctx, "receipts", `DELETE FROM {receipts} WHERE (sink, "offset", id) IN (SELECT sink, "offset", id FROM (
		SELECT sink, "offset", id FROM {receipts} WHERE delivered_at <= (SELECT ?) ORDER BY delivered_at LIMIT ?) old)`, t.run.Dialect.NowPlus(-age), limit)
}

// removeOld runs a DELETE of the pruner.
func (t *Tables) removeOld(ctx context.Context, what, text string, args ...any) (int, error) {
	removed, err := t.run.Exec(ctx, t.run.DB, text, args...)
	if err != nil {
		return 0, t.run.Failed(err, "remove old %s", what)
	}
	return int(removed), nil
}

// PruneInbox removes old ids; see store.Pruner, and PruneReceipts for the clock.
func (t *Tables) PruneInbox(ctx context.Context, age time.Duration, limit int) (int, error) {
	return t.removeOld(ctx, "ids of the inbox", `DELETE FROM {inbox} WHERE (consumer, id) IN (SELECT consumer, id FROM (
		SELECT consumer, id FROM {inbox} WHERE seen_at <= (SELECT ?) ORDER BY seen_at LIMIT ?) old)`, t.run.Dialect.NowPlus(-age), limit)
}

// PruneCancelled removes old cancellations; see store.Pruner, and PruneReceipts for the clock. The
// cancellation of a row in the log stays, since a replay would find the row.
func (t *Tables) PruneCancelled(ctx context.Context, age time.Duration, limit int) (int, error) {
	return t.removeOld(ctx, "cancellations", `DELETE FROM {cancelled} WHERE ("offset", id) IN (SELECT "offset", id FROM (
		SELECT c."offset", c.id FROM {cancelled} c WHERE c.cancelled_at <= (SELECT ?)
			AND NOT EXISTS (SELECT 1 FROM {log} o WHERE o."offset" = c."offset" AND o.id = c.id {whole log})
			AND NOT EXISTS (SELECT 1 FROM {parked} p WHERE p.id = c.id AND p."offset" = c."offset" AND p.state = 'scheduled' {whole parked})
		LIMIT ?) old)`, t.run.Dialect.NowPlus(-age), limit)
}

// PruneClaims removes old claims; see store.Pruner, and PruneReceipts for the clock.
func (t *Tables) PruneClaims(ctx context.Context, age time.Duration, limit int) (int, error) {
	return t.removeOld(ctx, "uniqueness keys", `DELETE FROM {unique} WHERE (type, "key") IN (SELECT type, "key" FROM (
		SELECT type, "key" FROM {unique} WHERE until <= (SELECT ?) ORDER BY until LIMIT ?) old) AND until <= (SELECT ?)`,
		t.run.Dialect.NowPlus(-age), limit, t.run.Dialect.NowPlus(-age))
}
