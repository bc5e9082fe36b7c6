// Hello commits an order together with its notification, and delivers the notification to a function.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	_ "github.com/lib/pq"
	"github.com/waybill-go/waybill"
)

type OrderPlaced struct{ OrderID, Product string }

func main() {
	ctx, stop := context.WithCancel(context.Background())
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	check(err)
	o := waybill.Postgres(db, waybill.PostgresConfig{})
	waybill.Register[OrderPlaced](o, "order.placed", waybill.Key(func(p OrderPlaced) string { return p.OrderID }))
	waybill.Handle(o, "warehouse", func(_ context.Context, p OrderPlaced) error {
		fmt.Printf("reserve one %s for %s\n", p.Product, p.OrderID)
		stop() // one delivery is enough here: Run returns once it is settled
		return nil
	})
	check(o.Migrate(ctx)) // creates the outbox's tables beside yours
	// One transaction stores the order and its notification, or neither.
	check(o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders AS SELECT 'o-17' AS id, 'kite' AS product`); err != nil {
			return err
		}
		return o.Publish(ctx, tx, OrderPlaced{OrderID: "o-17", Product: "kite"})
	}))
	check(o.Run(ctx))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
