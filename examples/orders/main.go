// An order and the notification of it, committed together; then its delivery.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

type OrderPlaced struct{ OrderID, Product string }

func (o OrderPlaced) Key() string { return o.OrderID } // what has one key keeps its order

func main() {
	ctx, stop := context.WithCancel(context.Background())
	folder := must(os.MkdirTemp("", "orders"))
	defer os.RemoveAll(folder)
	db := must(sqlite.OpenDB(filepath.Join(folder, "orders.db")))
	defer db.Close()
	must(db.ExecContext(ctx, `CREATE TABLE orders (id TEXT PRIMARY KEY, product TEXT)`))
	must(sqlite.Migrate(ctx, db, sqlite.Config{})) // the outbox stands beside your tables
	store := must(sqlite.Open(ctx, db, sqlite.Config{}))
	types := registry.New()
	check(registry.Register[OrderPlaced](types, "order.placed", registry.Key(OrderPlaced.Key)))
	printer := sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
		fmt.Printf("%s: %+v\n", d.Type, must(registry.Decode[OrderPlaced](types, d.Envelope)))
		stop() // one delivery is enough here: Run ends when it is settled
		return "printed", nil
	})
	engine := must(forwarder.New(forwarder.Config{Store: store, Sinks: map[string]forwarder.Sink{"printer": {Sink: printer}},
		Types: types, Routes: route.Routes{"order.*": route.To("printer")}}))
	publisher := must(outbox.New(types, store, outbox.Config{Wake: engine.Wake}))
	check(publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error { // both, or neither
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES ('o-17', 'kite')`); err != nil {
			return err
		}
		return publisher.Publish(ctx, tx, OrderPlaced{OrderID: "o-17", Product: "kite"})
	}))
	check(engine.Run(ctx))
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
