package acts

import (
	"context"
	"database/sql"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/internal/tables"
)

// rewrittenRows is how many rows one batch reads: their payloads are in memory together.
const rewrittenRows = 200

// payloadRow is a row of the log, or a parked delivery.
type payloadRow struct {
	notification.Envelope
	sink string
}

// RewritePayloads replaces payloads; see store.Personal. The last offset of the log is the end of both parts: what is
// inserted later is about a person who is there again.
func (t *Acts) RewritePayloads(ctx context.Context, b store.RewriteBatch) (result store.PersonalResult, err error) {
	defer t.run.Tried(&err, "rewrite payloads")
	at := b.After
	if at.Table == "" {
		at = store.PersonalPlace{Table: "parked"}
		if t.run.Source == nil {
			at.Table = "log"
			at.UpTo, err = t.run.LastOffset(ctx)
		}
		if err != nil {
			return result, err
		}
	}
	from, where := `'' AS sink, "offset", id, type, payload FROM {log}`, tables.SQL(`"offset" > ? AND "offset" <= ?`, at.After.Offset, at.UpTo)
	order := `"offset" {limit} ? {whole log}`
	if at.Table == "parked" {
		from, order = `sink, "offset", id, type, payload FROM {parked}`, `sink, "offset", id {limit} ? {whole parked}`
		where = tables.SQL(`(sink, "offset", id) > (?, ?, ?)`, at.After.Sink, at.After.Offset, at.After.ID)
	}
	rows, err := tables.List(ctx, t.run, t.run.DB, func(rows *sql.Rows, r *payloadRow) error {
		return rows.Scan(&r.sink, &r.Offset, &r.ID, &r.Type, &r.Payload)
	}, `SELECT `+from+` WHERE ? AND ? ORDER BY `+order, where, tables.AnyOf(`type`, b.Types), rewrittenRows)
	if err != nil {
		return result, err
	}
	result.Next = at
	if n := len(rows); n > 0 {
		result.Next.After = store.ParkedPlace{Sink: rows[n-1].sink, Ref: store.Ref{Offset: rows[n-1].Offset, ID: rows[n-1].ID}}
	}
	if len(rows) < rewrittenRows {
		result.Done = at.Table == "parked"
		result.Next = store.PersonalPlace{Table: "parked"}
	}
	var changes []tables.Expr
	for i := range rows {
		r := &rows[i]
		if payload, ok := b.Change(&r.Envelope); ok && at.Table == "log" {
			changes = append(changes, tables.SQL(`UPDATE {log} SET payload = ? WHERE "offset" = ? AND id = ?`, t.run.Dialect.BindPayload(payload), r.Offset, r.ID))
		} else if ok {
			changes = append(changes, tables.SQL(`UPDATE {parked} SET payload = ? WHERE sink = ? AND "offset" = ? AND id = ?`, t.run.Dialect.BindPayload(payload), r.sink, r.Offset, r.ID))
		}
	}
	if len(changes) == 0 {
		return result, nil
	}
	return result, t.inBatch(ctx, store.PersonalBatch{Action: b.Action}, change{step: failpoint.Rewrite}, nil, &result, func(tx *sql.Tx) (changed int, err error) {
		for _, change := range changes {
			n, err := t.run.Exec(ctx, tx, `?`, change)
			if changed += int(n); err != nil {
				return changed, err
			}
		}
		return changed, nil
	})
}
