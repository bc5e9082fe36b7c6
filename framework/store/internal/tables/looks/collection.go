package looks

import (
	"context"
	"database/sql"
	"errors"

	"github.com/waybill-go/waybill/framework/store"
)

// Collection returns a collection; see store.Inspector.
func (t *Looks) Collection(ctx context.Context, sink string, of store.CollectionRef) (c store.Collection, err error) {
	defer t.run.Tried(&err, "look at collection %s of %s", of.Group, sink)
	err = t.run.Row(ctx, t.run.DB, `SELECT count(*), min(due_at) FROM (SELECT due_at FROM {parked}
			WHERE sink = ? AND collect_group = ? AND collect_group <> '' AND collection = ? AND state = 'collecting' ORDER BY "offset" {limit} ?) few {whole parked}`,
		sink, of.Group, of.Number, store.ParkedLimit).Scan(&c.Members, t.run.Into(&c.DueAt))
	if err != nil || of.Number != "" || c.Members == 0 {
		return c, err
	}
	err = t.run.Row(ctx, t.run.DB, `SELECT due_at, closed FROM {collections} WHERE sink = ? AND collect_group = ? {whole collections}`,
		sink, of.Group).Scan(t.run.Into(&c.DueAt), &c.Behind)
	if errors.Is(err, sql.ErrNoRows) { // closed meanwhile
		return store.Collection{}, nil
	}
	return c, err
}
