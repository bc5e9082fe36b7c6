//go:build entclient

package drivers

import (
	"context"
	"database/sql"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/outbox/drivers/internal/ent"
)

func unitOfEnt(ctx context.Context, tx outbox.Tx, client *ent.Client) unit {
	return unit{tx: tx, insert: func(order string) error {
		return client.Order.Create().SetID(order).SetProduct("kite").Exec(ctx)
	}}
}

// With the feature sql/execquery, ent's transaction executes statements.
func TestEnt(t *testing.T) {
	t.Parallel()
	checkEnt(t, onPq(t), dialect.Postgres)
}

func TestEntOnMySQL(t *testing.T) {
	t.Parallel()
	checkEnt(t, onMySQL(t), dialect.MySQL)
}

func checkEnt(t *testing.T, s *shop, name string) {
	client := ent.NewClient(ent.Driver(entsql.OpenDB(name, s.db)))
	s.refuses(t, client, (*ent.Tx)(nil))
	s.check(t, false, func(ctx context.Context, f func(unit) error) error {
		tx, err := client.Tx(ctx)
		if err != nil {
			return err
		}
		if err := f(unitOfEnt(ctx, tx, tx.Client())); err != nil {
			_ = tx.Rollback()
			return err
		}
		return tx.Commit()
	})
}

// Without the feature, ent works in a transaction of package database/sql.
func TestEntWithoutItsSQLFeature(t *testing.T) {
	t.Parallel()
	s := onPq(t)
	s.check(t, true, func(ctx context.Context, f func(unit) error) error {
		return s.publisher.RunInTx(ctx, s.db, nil, func(ctx context.Context, tx *sql.Tx) error {
			client := ent.NewClient(ent.Driver(entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx})))
			return f(unitOfEnt(ctx, tx, client))
		})
	})
}
