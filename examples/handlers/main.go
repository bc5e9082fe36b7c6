// Handlers hands notifications to functions of the program itself. The warehouse
// reserves goods: its first try comes at a bad moment, and comes again; its second
// has reserved them already when it fails, and reserves nothing twice; for what the
// shop does not sell it says that trying is in vain. The mailing has functions for
// two types. Both sinks go their own pace: the mailing waits for no warehouse.
//
//	go run ./examples/handlers
//
// It ends with code 1 if something is reserved twice or not at all.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
)

// The notifications.
type (
	CustomerJoined struct{ Name string }
	OrderPlaced    struct{ OrderID, Customer, Product string }
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelError + 1) // the output tells all
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "handlers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	folder, err := os.MkdirTemp("", "handlers")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	db, err := sqlite.OpenDB(filepath.Join(folder, "shop.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := sqlite.Migrate(ctx, db, sqlite.Config{}); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE reservations (id TEXT PRIMARY KEY, order_id TEXT)`); err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, db, sqlite.Config{})
	if err != nil {
		return err
	}
	types := registry.New()
	err = errors.Join(
		registry.Register[CustomerJoined](types, "customer.joined"),
		registry.Register[OrderPlaced](types, "order.placed"),
	)
	if err != nil {
		return err
	}

	events := make(chan event, 100)
	warehouse := function.HandleDelivery(types, (&warehouse{db, events}).reserve)
	mailing := function.Mux(types,
		function.On(func(_ context.Context, c CustomerJoined) error {
			events <- event{"mailing", "welcome, " + c.Name, true}
			return nil
		}),
		function.On(func(_ context.Context, o OrderPlaced) error {
			events <- event{"mailing", o.Customer + ", thank you for " + o.OrderID, true}
			return nil
		}),
	)
	engine, err := forwarder.New(forwarder.Config{
		Store: store, Types: types,
		Sinks: map[string]forwarder.Sink{
			"warehouse": {Sink: warehouse, Retry: forwarder.Retry{Initial: 100 * time.Millisecond}},
			"mailing":   {Sink: mailing},
		},
		Routes: route.Routes{"order.placed": route.To("warehouse", "mailing"), "customer.*": route.To("mailing")},
	})
	if err != nil {
		return err
	}
	publisher, err := outbox.New(types, store, outbox.Config{Wake: engine.Wake})
	if err != nil {
		return err
	}
	err = publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		return publisher.Publish(ctx, tx,
			CustomerJoined{"Ada"},
			OrderPlaced{"o-1", "Ada", "kite"},
			OrderPlaced{"o-2", "Ada", "kite"},
			OrderPlaced{"o-3", "Ada", "moon"},
		)
	})
	if err != nil {
		return err
	}
	if err := runUntilAllIsDone(ctx, engine, events, out); err != nil {
		return err
	}
	return check(context.WithoutCancel(ctx), db)
}

// event is what a handler reports. The last one of a delivery is final.
type event struct {
	sink, text string
	final      bool
}

// runUntilAllIsDone runs the engine until the warehouse is done with three
// notifications and the mailing with four.
func runUntilAllIsDone(ctx context.Context, engine *forwarder.Forwarder, events <-chan event, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	for open := 3 + 4; open > 0; {
		select {
		case e := <-events:
			fmt.Fprintf(out, "%s: %s\n", e.sink, e.text)
			if e.final {
				open--
			}
		case err := <-ended:
			return err
		}
	}
	stop() // what is in flight is settled first
	return <-ended
}

// warehouse is a handler with what it needs.
type warehouse struct {
	db     *sql.DB
	events chan<- event
}

func (w *warehouse) reserve(ctx context.Context, d *notification.Delivery, o OrderPlaced) error {
	switch {
	case o.Product == "moon":
		w.events <- event{"warehouse", o.OrderID + ": not ours to sell", true}
		return sinks.Permanent(errors.New("there is no product " + o.Product)) // dead at once
	case o.OrderID == "o-1" && d.Attempt == 1:
		w.events <- event{"warehouse", o.OrderID + ": a bad moment", false}
		return errors.New("the forklift is busy") // tried again
	}
	// A delivery can come twice. Its id stands in the row, so its effect does not.
	result, err := w.db.ExecContext(ctx, `INSERT INTO reservations (id, order_id) VALUES (?, ?) ON CONFLICT DO NOTHING`, d.ID, o.OrderID)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		w.events <- event{"warehouse", o.OrderID + ": reserved before", true}
		return err
	}
	if o.OrderID == "o-2" {
		w.events <- event{"warehouse", o.OrderID + ": reserved, and stumbled on the way back", false}
		return errors.New("connection lost")
	}
	w.events <- event{"warehouse", o.OrderID + ": reserved", true}
	return nil
}

// check looks at what was reserved, and at what is parked.
func check(ctx context.Context, db *sql.DB) error {
	var reserved, dead int
	err := db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM reservations), (SELECT count(*) FROM outbox_parked WHERE state = 'dead')`).Scan(&reserved, &dead)
	if err == nil && (reserved != 2 || dead != 1) {
		err = fmt.Errorf("%d orders are reserved and %d dead; 2 and 1 were to be", reserved, dead)
	}
	return err
}
