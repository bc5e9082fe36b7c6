package tables

import (
	"context"

	"github.com/waybill-go/waybill/framework/store"
)

// These conditions read the primary key once for each row with a time, even without statistics.
const (
	// NotCancelled is the condition that a row of the log, called o, is not cancelled.
	NotCancelled = `(o.deliver_at IS NULL OR NOT EXISTS (
		SELECT 1 FROM {cancelled} c WHERE c."offset" = o."offset" AND c.id = o.id {whole cancelled}))`
	// PresentState is the state of a parked delivery, called p, as it is read.
	PresentState = `CASE WHEN p.state = 'scheduled' AND EXISTS (
		SELECT 1 FROM {cancelled} c WHERE c."offset" = p."offset" AND c.id = p.id {whole cancelled}) THEN 'cancelled' ELSE p.state END`
)

// Cancel cancels scheduled notifications; see store.Canceller. A row moves from the log to the
// parked table, and is in one of them in any snapshot.
func (t *Tables) Cancel(ctx context.Context, tx store.Execer, s store.Scheduled) (int, error) {
	query, args := t.run.Render(t.run.CancelQuery(s))
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, t.run.refused(ctx, tx, err, "cancelled", "cancel what is scheduled")
	}
	cancelled, err := result.RowsAffected()
	return int(cancelled), err
}

// CancelQuery uses the indexes of scheduled rows.
func (r *Runner) CancelQuery(s store.Scheduled) Expr {
	which := SQL(`id = ?`, s.ID)
	if s.ID == "" {
		which = SQL(`"key" = ? AND "key" <> '' AND ?`, s.Key, AnyOf(`type`, s.Types))
	}
	later := func(column string) string { return r.Dialect.LogTime(column) + ` > ` + r.Dialect.LogTime(`{now}`) }
	return SQL(`INSERT INTO {cancelled} ("offset", id)
		SELECT "offset", id FROM {log} WHERE ? AND deliver_at IS NOT NULL AND `+later(`deliver_at`)+`
		UNION SELECT "offset", id FROM {parked} WHERE ? AND state = 'scheduled' AND `+later(`due_at`)+` {whole log parked}`+
		r.Dialect.OnConflict([]string{`"offset"`, "id"}, nil, Condition{}), which, which)
}
