package tables

import (
	"context"

	"github.com/waybill-go/waybill/framework/store"
)

// First notes an id; see store.Inbox.
func (t *Tables) First(ctx context.Context, tx store.Execer, consumer, id string) (bool, error) {
	key := []string{"consumer", "id"}
	query, args := t.run.Render(SQL(`INSERT INTO {inbox} (consumer, id) VALUES (?, ?)`+t.run.Dialect.OnConflict(key, nil, Condition{}), consumer, id))
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return false, t.run.refused(ctx, tx, err, "inbox", "note the id in the inbox")
	}
	noted, err := result.RowsAffected()
	return noted == 1, err
}
