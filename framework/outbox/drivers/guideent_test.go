//go:build entclient

package drivers

import (
	"context"
	"database/sql"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/outbox/drivers/internal/ent"
)

func TestTheBlocksOfTheGuidePublishWithEnt(t *testing.T) {
	t.Parallel()
	s := newInboxShop(t)
	require.NoError(t, guideEnt(t.Context(), s.publisher, ent.NewClient(ent.Driver(entsql.OpenDB(dialect.Postgres, s.db)))))
	require.NoError(t, guideEntOverSQL(t.Context(), s.publisher, s.db))
	require.EqualValues(t, 2, s.wakes.Load())
	require.Equal(t, []string{"o-23", "o-24"}, s.column(t, `SELECT key FROM outbox ORDER BY "offset"`))
}

func guideEnt(ctx context.Context, publisher *outbox.Publisher, client *ent.Client) error {
	tx, err := client.Tx(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := tx.Order.Create().SetID("o-23").SetProduct("kite").Exec(ctx); err != nil {
		return err
	}
	if err := publisher.Publish(ctx, tx, OrderPlaced{Order: "o-23", Product: "kite"}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	publisher.Announce()
	return nil
}

func guideEntOverSQL(ctx context.Context, publisher *outbox.Publisher, db *sql.DB) error {
	err := publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		client := ent.NewClient(ent.Driver(entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx})))
		if err := client.Order.Create().SetID("o-24").SetProduct("kite").Exec(ctx); err != nil {
			return err
		}
		return publisher.Publish(ctx, tx, OrderPlaced{Order: "o-24", Product: "kite"})
	})
	return err
}
