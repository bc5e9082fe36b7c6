// Chain takes an order, its payment and its shipment one after the other. Each handler commits
// its effect together with the notification of it, so a program that dies between two steps, or
// fails after its effects as the first payment of o-2 does, goes on where it was: no step is
// missing and none is done twice. One shipment becomes a notification for each of its parcels.
// The metadata of each step says with which notification the chain began.
//
//	go run ./examples/chain
//
// DATABASE_URL names an empty database of PostgreSQL, MySQL or MariaDB in place of an SQLite
// file. It ends with code 1 if a step is missing or done twice.
package main

import (
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

// What happens, one after the other.
type (
	OrderPlaced struct{ Order string }
	OrderPaid   struct{ Order string }
	ParcelSent  struct{ Order, Parcel string }
)

// parcels of each order.
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
	failed, told := false, 0
	// One at a time, since the functions share what is above.
	waybill.HandleTx(o, "payments", func(ctx context.Context, tx *sql.Tx, n OrderPlaced) error {
		if err := errors.Join(d.write(ctx, tx, n.Order, "paid"), o.Publish(ctx, tx, OrderPaid(n))); err != nil {
			return err
		}
		if n.Order == "o-2" && !failed {
			failed = true
			fmt.Fprintln(out, n.Order, "paid, and the connection is lost: all of it is rolled back")
			return errors.New("connection lost")
		}
		return tell(ctx, out, n.Order, "paid")
	}).Parallelism.Threshold = 1
	waybill.HandleTx(o, "shipments", func(ctx context.Context, tx *sql.Tx, n OrderPaid) error {
		err := d.write(ctx, tx, n.Order, "shipped")
		for _, parcel := range parcels[n.Order] {
			err = errors.Join(err, o.Publish(ctx, tx, ParcelSent{n.Order, parcel}))
		}
		return err
	}).Parallelism.Threshold = 1
	waybill.Handle(o, "customers", func(ctx context.Context, n ParcelSent) error {
		if told++; told == 3 {
			stop() // Run ends when this is settled
		}
		return tell(ctx, out, n.Order, "sent: "+n.Parcel)
	}).Parallelism.Threshold = 1

	if err := o.Migrate(ctx); err != nil {
		return err
	}
	err = o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(d.write(ctx, tx, "o-1", "placed"), d.write(ctx, tx, "o-2", "placed"),
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

// tell prints what happened, and with which notification it began.
func tell(ctx context.Context, out io.Writer, order, what string) error {
	cause := notification.Cause(ctx)
	began := cause.Metadata.Get(notification.MetadataCorrelationID)
	if began == "" {
		began = cause.ID
	}
	_, err := fmt.Fprintf(out, "%s %s (it began with %s)\n", order, what, began)
	return err
}
