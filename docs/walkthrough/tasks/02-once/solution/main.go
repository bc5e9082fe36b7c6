// The warehouse takes a product from the stock for each order.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/waybillpgx"
)

type order struct {
	Order   string `json:"order"`
	Product string `json:"product"`
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	o := waybillpgx.New(pool, waybill.PostgresConfig{})
	defer func() { _ = o.Close() }()
	waybill.Register[order](o, "order.placed", waybill.Key(func(n order) string { return n.Order }))
	waybillpgx.HandleTx(o, "warehouse", func(ctx context.Context, tx pgx.Tx, n order) error {
		taken, err := tx.Exec(ctx, `UPDATE stock SET remaining = remaining - 1 WHERE product = $1`, n.Product)
		if err == nil && taken.RowsAffected() == 0 {
			err = waybill.Permanent(fmt.Errorf("no product %s", n.Product))
		}
		return err
	})
	if err := o.Open(ctx); err != nil {
		return err
	}
	return o.Run(ctx)
}
