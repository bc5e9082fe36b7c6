package program_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/inbox"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/program"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// A program with a custom sink creates the tables of an outbox, and delivers what an application
// publishes there. A main function would call Main instead of Run.
func ExampleRun() {
	folder, err := os.MkdirTemp("", "shop")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	file, path := filepath.Join(folder, "waybill.yaml"), filepath.Join(folder, "shop.db")
	if err := os.WriteFile(file, []byte(`
database: "sqlite:${DATABASE}"
sinks: {printer: {kind: go}}
routes: {"order.*": [printer]}
`), 0o600); err != nil {
		log.Fatal(err)
	}

	ctx, stop := context.WithCancel(context.Background())
	printer := program.Sink("printer", func(sinks.Instance) (sinks.Sink, error) {
		return sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
			fmt.Printf("%s: %s\n", d.Type, d.Payload)
			stop() // end waybill forward
			return "printed", nil
		}), nil
	})
	waybill := func(command string) {
		call := program.Call{Args: []string{command, "-c", file}, Environ: []string{"DATABASE=" + path}}
		if code := program.Run(ctx, call, printer); code != 0 {
			log.Fatalf("%s: exit code %d", command, code)
		}
	}

	waybill("migrate")
	publish(ctx, path)
	waybill("forward")
	// Output: order.placed: {"order": 17}
}

type OrderPlaced struct {
	Order string `json:"order"`
}

// A function of the program has its effects once, in the database that the configuration names.
func ExampleFunctionsTx() {
	folder, err := os.MkdirTemp("", "shop")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "shop.db")
	db, err := sqlite.OpenDB(path)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	ctx, stop := context.WithCancel(context.Background())
	if _, err := db.ExecContext(ctx, `CREATE TABLE reservations (order_id text PRIMARY KEY)`); err != nil {
		log.Fatal(err)
	}
	file := filepath.Join(folder, "waybill.yaml")
	if err := os.WriteFile(file, []byte("database: sqlite:"+path+`
sinks: {warehouse: {kind: function}}
routes: {order.placed: [warehouse]}
`), 0o600); err != nil {
		log.Fatal(err)
	}

	types := registry.New()
	if err := registry.Register[OrderPlaced](types, "order.placed"); err != nil {
		log.Fatal(err)
	}
	once := program.FunctionsTx("warehouse", inbox.OnTx(func(ctx context.Context, tx *sql.Tx, n OrderPlaced) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO reservations VALUES ($1)`, n.Order)
		return err
	}))
	end := program.Hooks(forwarder.Hooks{Delivered: func(context.Context, *sql.Tx, []forwarder.Delivered) error { stop(); return nil }})
	for _, command := range []string{"migrate", "forward"} {
		if command == "forward" {
			if _, err := db.ExecContext(ctx, `INSERT INTO outbox (type, payload) VALUES ('order.placed', '{"order": "o-17"}')`); err != nil {
				log.Fatal(err)
			}
		}
		if code := program.Run(ctx, program.Call{Args: []string{command, "-c", file}}, program.Types(types), once, end); code != 0 {
			log.Fatalf("%s: exit code %d", command, code)
		}
	}
	var order string
	if err := db.QueryRow(`SELECT order_id FROM reservations`).Scan(&order); err != nil {
		log.Fatal(err)
	}
	fmt.Println("reserved", order)
	// Output: reserved o-17
}

// publish publishes a notification, as any application can.
func publish(ctx context.Context, path string) {
	db, err := sqlite.OpenDB(path)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(ctx, `INSERT INTO outbox (type, key, payload) VALUES ('order.placed', 'order-17', '{"order": 17}')`); err != nil {
		log.Fatal(err)
	}
}
