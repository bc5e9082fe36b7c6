// Chain takes an order, a payment and a shipment one after the other. Each step is committed
// together with the intention of the next, so a program that dies between two of them, or
// fails behind its effects as the first payment of o-2 does, goes on where it was: no
// step is missing and none is done twice. The chain is told in the metadata.
//
//	go run ./examples/chain
//
// It ends with code 1 if an order is not paid and shipped exactly once.
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

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// What happens, one after the other.
type (
	OrderPlaced  struct{ Order string }
	PaymentMade  struct{ Order string }
	OrderShipped struct{ Order string }
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelError) // the output tells the rest
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "chain:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	folder, err := os.MkdirTemp("", "chain")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	db, err := sqlite.OpenDB(filepath.Join(folder, "shop.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, `CREATE TABLE steps (customer_order TEXT, step TEXT)`); err != nil {
		return err
	}

	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[OrderPlaced](o, "order.placed")
	waybill.Register[PaymentMade](o, "payment.made")
	waybill.Register[OrderShipped](o, "order.shipped")
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed, shipped := false, 0
	// One at a time, since the functions share what is above.
	waybill.HandleTx(o, "payments", func(ctx context.Context, tx *sql.Tx, n OrderPlaced) error {
		if err := errors.Join(write(ctx, tx, n.Order, "paid"), o.Publish(ctx, tx, PaymentMade(n))); err != nil {
			return err
		}
		if n.Order == "o-2" && !failed {
			failed = true
			fmt.Fprintln(out, n.Order, "paid, and the connection is lost: all of it is rolled back")
			return errors.New("connection lost")
		}
		return tell(ctx, out, n.Order, "paid")
	}).Parallelism.Threshold = 1
	waybill.HandleTx(o, "shipments", func(ctx context.Context, tx *sql.Tx, n PaymentMade) error {
		return errors.Join(write(ctx, tx, n.Order, "shipped"), o.Publish(ctx, tx, OrderShipped(n)))
	}).Parallelism.Threshold = 1
	waybill.Handle(o, "customers", func(ctx context.Context, n OrderShipped) error {
		if shipped++; shipped == 2 {
			stop() // Run ends when this is settled
		}
		return tell(ctx, out, n.Order, "shipped, its customer knows")
	}).Parallelism.Threshold = 1

	if err := o.Migrate(ctx); err != nil {
		return err
	}
	err = o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return errors.Join(write(ctx, tx, "o-1", "placed"), write(ctx, tx, "o-2", "placed"),
			o.Publish(ctx, tx, waybill.With(OrderPlaced{"o-1"}, waybill.ID("order-1")), waybill.With(OrderPlaced{"o-2"}, waybill.ID("order-2"))))
	})
	if err != nil {
		return err
	}
	if err := o.Run(ctx); err != nil {
		return err
	}
	return check(db)
}

// write is a step's effect.
func write(ctx context.Context, tx *sql.Tx, order, step string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO steps VALUES (?, ?)`, order, step)
	return err
}

// tell prints what happened, and with which order it began.
func tell(ctx context.Context, out io.Writer, order, what string) error {
	cause := notification.Cause(ctx)
	began := cause.Metadata.Get(notification.MetadataCorrelationID)
	if began == "" {
		began = cause.ID
	}
	_, err := fmt.Fprintf(out, "%s %s (it began with %s)\n", order, what, began)
	return err
}

// check counts the steps, of which each order has three.
func check(db *sql.DB) error {
	var orders, steps, all int
	err := db.QueryRow(`SELECT count(DISTINCT customer_order), count(DISTINCT customer_order || step), count(*) FROM steps`).Scan(&orders, &steps, &all)
	if err == nil && (orders != 2 || steps != 6 || all != 6) {
		err = fmt.Errorf("%d orders have %d steps of %d different ones", orders, all, steps)
	}
	return err
}
