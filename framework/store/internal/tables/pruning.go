package tables

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/internal/failpoint"
	"github.com/waybill-go/waybill/framework/store"
)

// leftovers are the tables with what is kept for a while, their keys, and the time at which the age begins.
var leftovers = map[store.Leftover]struct{ table, key, since string }{
	store.LeftoverReceipts:      {"receipts", `sink, "offset", id`, "delivered_at"},
	store.LeftoverIDs:           {"inbox", `consumer, id`, "seen_at"},
	store.LeftoverCancellations: {"cancelled", `"offset", id`, "cancelled_at"},
	store.LeftoverClaims:        {"unique", `type, "key"`, "until"},
	store.LeftoverAttempts:      {"attempts", `id`, "until"},
}

// unneeded is the condition that nothing needs a cancellation, called c. That of a row in the log stays,
// since a replay would find the row.
const unneeded = ` AND NOT EXISTS (SELECT 1 FROM {log} o WHERE o."offset" = c."offset" AND o.id = c.id {whole log})
	AND NOT EXISTS (SELECT 1 FROM {parked} p WHERE p.id = c.id AND p."offset" = c."offset" AND p.state = 'scheduled' {whole parked})`

// PruneLeftovers removes old leftovers; see store.Pruner. It reads the clock in a separate query:
// PostgreSQL does not use an index for an expression that it must evaluate for each row. The condition is
// repeated, since a claim may be taken again meanwhile.
func (t *Tables) PruneLeftovers(ctx context.Context, kind store.Leftover, age time.Duration, limit int) (int, error) {
	l := leftovers[kind]
	which := l.since + ` <= (SELECT ?) ORDER BY ` + l.since
	if kind == store.LeftoverCancellations {
		which = l.since + ` <= (SELECT ?)` + unneeded
	}
	old := t.run.Dialect.NowPlus(-age)
	var removed int64
	err := failpoint.Leftovers.Do(func() (err error) {
		removed, err = t.run.Exec(ctx, t.run.DB, `DELETE FROM {`+l.table+`} WHERE (`+l.key+`) IN (SELECT `+l.key+` FROM (
			SELECT `+l.key+` FROM {`+l.table+`} c WHERE `+which+` {limit} ?) old) AND `+l.since+` <= (SELECT ?)`, old, limit, old)
		return err
	})
	if err != nil {
		return 0, t.run.Failed(err, "remove old %s", kind)
	}
	return int(removed), nil
}
