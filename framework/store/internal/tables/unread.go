package tables

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// Unread returns store.ErrUnsafeLog, with the SQL that appends them again, if the log has rows that no
// reader finds: with an offset below 1, which a producer chose.
func (t *Tables) Unread(ctx context.Context) error {
	if t.source != nil {
		return nil
	}
	var rows int
	if err := t.run.Row(ctx, t.db, `SELECT count(*) FROM {log} WHERE "offset" < 1`).Scan(&rows); err != nil {
		return fmt.Errorf("look for rows with offsets below 1: %w", err)
	}
	if rows == 0 {
		return nil
	}
	const columns = `id, type, version, "key", occurred_on, deliver_at, metadata, payload`
	mend, _ := t.run.Render(SQL(`BEGIN; INSERT INTO {log} (` + columns + `) SELECT ` + columns +
		` FROM {log} WHERE "offset" < 1 ORDER BY "offset"; DELETE FROM {log} WHERE "offset" < 1; COMMIT;`))
	return fmt.Errorf("%w: %d rows have an offset below 1, which a producer chose, and are never delivered; to fix it: %s", store.ErrUnsafeLog, rows, mend)
}
