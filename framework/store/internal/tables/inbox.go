package tables

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// First notes an id; see store.Inbox.
func (t *Tables) First(ctx context.Context, tx store.Execer, consumer, id string) (bool, error) {
	key := []string{"consumer", "id"}
	query, args := t.run.Render(SQL(`INSERT INTO {inbox} (consumer, id) VALUES (?, ?)`+t.dialect.OnConflict(key, nil, Condition{}), consumer, id))
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return false, t.refused(ctx, tx, err, "inbox", "note the id in the inbox")
	}
	noted, err := result.RowsAffected()
	return noted == 1, err
}

// PruneInbox removes old ids; see store.Pruner, and PruneReceipts for the clock.
func (t *Tables) PruneInbox(ctx context.Context, age time.Duration, limit int) (int, error) {
	return t.removeOld(ctx, "ids of the inbox", `DELETE FROM {inbox} WHERE (consumer, id) IN (SELECT consumer, id FROM (
		SELECT consumer, id FROM {inbox} WHERE seen_at <= (SELECT ?) ORDER BY seen_at LIMIT ?) old)`, t.dialect.NowPlus(-age), limit)
}
