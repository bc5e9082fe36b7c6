// Orders is a shop on PostgreSQL, MySQL or MariaDB, whichever the address names: it places
// orders and publishes them in the same transaction, and a forwarder in the same process has
// them paid and the warehouse told. It is made of the packages below the facade.
//
//	cd examples/orders
//	DATABASE_URL=postgres://me@localhost/shop?sslmode=disable go run .
//	DATABASE_URL=mysql://me@localhost/shop go run .
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
)

func main() {
	if err := run(context.Background(), os.Getenv("DATABASE_URL"), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run places one order and ends when its payment has reached the warehouse.
func run(ctx context.Context, address string, out io.Writer) error {
	d, err := connect(address)
	if err != nil {
		return err
	}
	defer d.db.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	shop, err := open(ctx, d, func(paid OrderPaid) {
		fmt.Fprintf(out, "the warehouse packs order %s\n", paid.Order)
		stop() // one order is enough here: forward ends when it is settled
	})
	if err != nil {
		return err
	}
	if err := shop.place(ctx, OrderPlaced{Order: "o-17", Product: "kite", Cents: 1999}); err != nil {
		return err
	}
	return shop.forwarder.Run(ctx)
}
