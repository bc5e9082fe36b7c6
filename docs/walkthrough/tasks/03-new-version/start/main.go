// The shop publishes orders, and handles them.
package main

import (
	"context"
	"database/sql"
	"log"
	"os"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/store/postgres"
)

type orderPlaced struct {
	Order   string `json:"order"`
	Product string `json:"product"`
}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, arguments []string) error {
	db, err := postgres.OpenDB(os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	o := waybill.Postgres(db, waybill.PostgresConfig{})
	waybill.Register[orderPlaced](o, "order.placed", waybill.Key(func(n orderPlaced) string { return n.Order }))
	waybill.HandleTx(o, "warehouse", func(ctx context.Context, tx *sql.Tx, n orderPlaced) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO reserved VALUES ($1, $2)`, n.Order, n.Product)
		return err
	})
	if err := o.Open(ctx); err != nil {
		return err
	}
	if arguments[0] == "publish" {
		return o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			return o.Publish(ctx, tx, orderPlaced{arguments[1], arguments[2]})
		})
	}
	return o.Run(ctx)
}
