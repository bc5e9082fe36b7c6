package waybillpgx_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/waybillpgx"
)

type OrderPlaced struct{ Order, Product string }

type GoodsReserved struct{ Order string }

// A shop places an order and reserves its goods, each with a notification in the same transaction.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	server, err := postgrestest.Start(ctx, postgrestest.Options{}) // instead of one of your own
	check(err)
	defer func() { check(server.Stop()) }()
	pool, err := pgxpool.New(ctx, server.DSN())
	check(err)
	defer pool.Close()
	_, err = pool.Exec(ctx, `CREATE TABLE reservations (for_order text)`)
	check(err)

	o := waybillpgx.New(pool, waybill.PostgresConfig{})
	defer func() { check(o.Close()) }()
	waybill.Register[OrderPlaced](o, "order.placed")
	waybill.Register[GoodsReserved](o, "goods.reserved")
	waybillpgx.HandleTx(o, "warehouse", func(ctx context.Context, tx pgx.Tx, n OrderPlaced) error {
		if _, err := tx.Exec(ctx, `INSERT INTO reservations VALUES ($1)`, n.Order); err != nil {
			return err
		}
		return o.Publish(ctx, tx, GoodsReserved{Order: n.Order})
	})
	waybill.Handle(o, "print", func(_ context.Context, n GoodsReserved) error {
		fmt.Println("the goods of", n.Order, "are reserved")
		stop()
		return nil
	})
	check(o.Migrate(ctx))
	check(o.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `CREATE TABLE orders AS SELECT 'o-17' AS id`); err != nil {
			return err
		}
		return o.Publish(ctx, tx, OrderPlaced{Order: "o-17", Product: "kite"})
	}))
	check(o.Run(ctx))
	// Output: the goods of o-17 are reserved
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
