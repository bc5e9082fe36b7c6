// Chain places two orders, and handlers pay for them and ship them. Each handler commits its
// effect together with the next notification. So a program that dies between two steps, or fails
// after an effect as the first payment of o-2 does, continues where it stopped: no step is missing
// and none is done twice. One shipment becomes a notification for each of its parcels. The metadata
// of each notification names the one with which the chain began.
//
//	go run ./examples/chain
//
// It uses a temporary SQLite file, or the empty PostgreSQL, MySQL or MariaDB database that
// DATABASE_URL names. It exits with code 1 if a step is missing or done twice.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/notification"
)

// The notifications of a chain, in their order.
type (
	OrderPlaced struct{ Order string }
	OrderPaid   struct{ Order string }
	ParcelSent  struct{ Order, Parcel string }
)

// parcels has the parcels of each order.
var parcels = map[string][]string{"o-1": {"kite"}, "o-2": {"kite", "string"}}

func main() {
	slog.SetLogLoggerLevel(slog.LevelError) // the output shows the rest
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Getenv("DATABASE_URL"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chain:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, address string, out io.Writer) error {
	d, err := open(address)
	if err != nil {
		return err
	}
	defer d.close()
	if _, err := d.db.ExecContext(ctx, `CREATE TABLE steps (customer_order varchar(100), step varchar(100))`); err != nil {
		return err
	}

	o := d.outbox
	waybill.Register[OrderPlaced](o, "order.placed")
	waybill.Register[OrderPaid](o, "order.paid")
	waybill.Register[ParcelSent](o, "parcel.sent")
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed, sent := false, 0
	// A threshold of 1 calls each handler for one notification at a time, so the variables need no lock.
	waybill.HandleTx(o, "payments", func(ctx context.Context, tx *sql.Tx, n OrderPlaced) error {
		if err := errors.Join(d.addStep(ctx, tx, n.Order, "paid"), o.Publish(ctx, tx, OrderPaid(n))); err != nil {
			return err
		}
		if n.Order == "o-2" && !failed {
			failed = true
			fmt.Fprintln(out, n.Order, "paid, then the connection is lost: the payment is rolled back")
			return errors.New("connection lost")
		}
		return printStep(ctx, out, n.Order, "paid")
	}).Parallelism.Threshold = 1
	waybill.HandleTx(o, "shipments", func(ctx context.Context, tx *sql.Tx, n OrderPaid) error {
		err := d.addStep(ctx, tx, n.Order, "shipped")
		for _, parcel := range parcels[n.Order] {
			err = errors.Join(err, o.Publish(ctx, tx, ParcelSent{n.Order, parcel}))
		}
		return err
	}).Parallelism.Threshold = 1
	waybill.Handle(o, "customers", func(ctx context.Context, n ParcelSent) error {
		if sent++; sent == 3 {
			stop() // Run returns once this delivery is settled
		}
		return printStep(ctx, out, n.Order, "sent: "+n.Parcel)
	}).Parallelism.Threshold = 1

	if err := o.Migrate(ctx); err != nil {
		return err
	}
	err = o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(d.addStep(ctx, tx, "o-1", "placed"), d.addStep(ctx, tx, "o-2", "placed"),
			o.Publish(ctx, tx, waybill.With(OrderPlaced{"o-1"}, waybill.ID("order-1")), waybill.With(OrderPlaced{"o-2"}, waybill.ID("order-2"))))
	})
	if err != nil {
		return err
	}
	if err := o.Run(ctx); err != nil {
		return err
	}
	return d.check()
}

// printStep prints a step, and the id of the notification with which its chain began.
func printStep(ctx context.Context, out io.Writer, order, step string) error {
	cause := notification.Cause(ctx)
	first := cmp.Or(cause.Metadata.Get(notification.MetadataCorrelationID), cause.ID)
	_, err := fmt.Fprintf(out, "%s %s (first notification: %s)\n", order, step, first)
	return err
}
