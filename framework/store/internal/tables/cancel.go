package tables

import (
	"context"
	"database/sql"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// These conditions read the primary key once for each row with a time, even without statistics.
const (
	// NotCancelled is the condition that a row of the log, called o, is not cancelled.
	NotCancelled = `(o.deliver_at IS NULL OR NOT EXISTS (
		SELECT 1 FROM {cancelled} c WHERE c."offset" = o."offset" AND c.id = o.id {whole cancelled}))`
	// presentState is the state of a parked delivery, called p, as it is read.
	presentState = `CASE WHEN p.state = 'scheduled' AND EXISTS (
		SELECT 1 FROM {cancelled} c WHERE c."offset" = p."offset" AND c.id = p.id {whole cancelled}) THEN 'cancelled' ELSE p.state END`
)

// Cancel cancels scheduled notifications; see store.Canceller. A row moves from the log to the
// parked table, and is in one of them in any snapshot.
func (t *Tables) Cancel(ctx context.Context, tx store.Execer, s store.Scheduled) (int, error) {
	query, args := t.run.Render(t.run.CancelQuery(s))
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, t.refused(ctx, tx, err, "cancelled", "cancel what is scheduled")
	}
	cancelled, err := result.RowsAffected()
	return int(cancelled), err
}

// CancelQuery uses the indexes of scheduled rows.
func (r *Runner) CancelQuery(s store.Scheduled) Expr {
	which := SQL(`id = ?`, s.ID)
	if s.ID == "" {
		which = SQL(`"key" = ? AND "key" <> '' AND ?`, s.Key, anyOf(`type`, s.Types))
	}
	later := func(column string) string { return r.dialect.LogTime(column) + ` > ` + r.dialect.LogTime(`{now}`) }
	return SQL(`INSERT INTO {cancelled} ("offset", id)
		SELECT "offset", id FROM {log} WHERE ? AND deliver_at IS NOT NULL AND `+later(`deliver_at`)+`
		UNION SELECT "offset", id FROM {parked} WHERE ? AND state = 'scheduled' AND `+later(`due_at`)+` {whole log parked}`+
		r.dialect.OnConflict([]string{`"offset"`, "id"}, nil, Condition{}), which, which)
}

// eachCancellation calls each with the cancellations that a condition on the id selects, in the
// order of their offsets.
func (t *Tables) eachCancellation(ctx context.Context, where Expr, each func(id string, c store.Cancellation)) error {
	return t.run.Each(ctx, t.db, func(rows *sql.Rows) error {
		var id string
		var c store.Cancellation
		at := t.run.time()
		if err := rows.Scan(&id, &c.Offset, &at); err != nil {
			return err
		}
		c.At = at.Time
		each(id, c)
		return nil
	}, `SELECT id, "offset", cancelled_at FROM {cancelled} WHERE ? ORDER BY "offset" {whole cancelled}`, where)
}

// PruneCancelled removes old cancellations; see store.Pruner, and PruneReceipts for the clock. The
// cancellation of a row in the log stays, since a replay would find the row.
func (t *Tables) PruneCancelled(ctx context.Context, age time.Duration, limit int) (int, error) {
	return t.removeOld(ctx, "cancellations", `DELETE FROM {cancelled} WHERE ("offset", id) IN (SELECT "offset", id FROM (
		SELECT c."offset", c.id FROM {cancelled} c WHERE c.cancelled_at <= (SELECT ?)
			AND NOT EXISTS (SELECT 1 FROM {log} o WHERE o."offset" = c."offset" AND o.id = c.id {whole log})
			AND NOT EXISTS (SELECT 1 FROM {parked} p WHERE p.id = c.id AND p."offset" = c."offset" AND p.state = 'scheduled' {whole parked})
		LIMIT ?) old)`, t.dialect.NowPlus(-age), limit)
}
