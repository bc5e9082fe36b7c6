// Dead-letters shows what a key does, and what happens to deliveries that fail. Three orders are
// placed, paid and shipped. The number of the order is the key: the warehouse receives the
// notifications of an order one after the other, and no order waits for another.
//
//   - o-1: all deliveries succeed.
//   - o-2: the payment fails with a transient error. It is tried again after growing pauses, and
//     the shipment waits for it.
//   - o-3: the warehouse refuses the order, so the delivery is dead at once. With OnDeadHalt the
//     later notifications of its key wait for an operator. By default they would be delivered.
//
// The operator asks why, repairs the warehouse and requeues the dead delivery. Then the warehouse
// receives o-3 too, in sequence.
//
//	go run ./examples/dead-letters
//
// It exits with code 1 if a notification arrives twice, not at all, or out of order.
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
	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

// The notifications of an order, in their order.
type (
	OrderPlaced  struct{ Order string }
	OrderPaid    struct{ Order string }
	OrderShipped struct{ Order string }
)

func main() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // no logs: the program prints what happens
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dead-letters:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	folder, err := os.MkdirTemp("", "dead-letters")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	db, err := sqlite.OpenDB(filepath.Join(folder, "orders.db"))
	if err != nil {
		return err
	}
	defer db.Close()

	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[OrderPlaced](o, "order.placed", waybill.Key(func(n OrderPlaced) string { return n.Order }))
	waybill.Register[OrderPaid](o, "order.paid", waybill.Key(func(n OrderPaid) string { return n.Order }))
	waybill.Register[OrderShipped](o, "order.shipped", waybill.Key(func(n OrderShipped) string { return n.Order }))
	w := newWarehouse()
	sink := o.Deliver("warehouse", w, "order.*")
	sink.Retry = forwarder.Retry{Initial: 20 * time.Millisecond, Max: time.Second, MaxAttempts: 50}
	sink.OnDead = forwarder.OnDeadHalt
	o.Config.Lease = 2 * time.Second // a forwarder notices an operator's action within a twentieth of it
	if err := o.Migrate(ctx); err != nil {
		return err
	}
	if err := publish(ctx, o); err != nil {
		return err
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	err = operate(ctx, out, db, w)
	stop()
	return errors.Join(err, <-ended)
}

// publish publishes the notifications of the three orders.
func publish(ctx context.Context, o *waybill.Outbox) error {
	return o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, order := range []string{"o-1", "o-2", "o-3"} {
			err := o.Publish(ctx, tx,
				waybill.With(OrderPlaced{order}, waybill.ID(order+"-placed")),
				waybill.With(OrderPaid{order}, waybill.ID(order+"-paid")),
				waybill.With(OrderShipped{order}, waybill.ID(order+"-shipped")))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// operate does what an operator on call does with waybill parked list, why and parked requeue.
func operate(ctx context.Context, out io.Writer, db *sql.DB, w *warehouse) error {
	s, err := sqlite.Open(ctx, db, sqlite.Config{})
	if err != nil {
		return err
	}
	operator := admin.New(s, "ada")

	if err := wait(ctx, func() (bool, error) {
		parked, err := operator.Parked(ctx, admin.Filter{Key: "o-3", States: []store.State{store.StateDead, store.StateBlocked}}, store.ParkedPlace{}, 10)
		return len(parked) == 3 && w.shipped("o-1") && w.shipped("o-2"), err
	}); err != nil {
		return err
	}
	w.print(out, "o-1", "o-2", "o-3")
	answer, err := operator.Why(ctx, "o-3-shipped", admin.Routing{})
	if err != nil {
		return err
	}
	for _, v := range answer.Verdicts {
		fmt.Fprintf(out, "why is o-3 not shipped? %s: %s\n", v.Sink, v.Text)
	}

	w.repair()
	plan, err := operator.Requeue(ctx, admin.Filter{Sink: "warehouse", Error: "too heavy"})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "the warehouse is repaired; deliveries to requeue: %d\n", plan.Total())
	action, err := plan.Run(ctx, nil)
	if err != nil {
		return err
	}
	if err := wait(ctx, func() (bool, error) {
		counts, err := operator.Count(ctx, admin.Filter{})
		return len(counts) == 0, err
	}); err != nil {
		return err
	}
	fmt.Fprintf(out, "requeued by %s: %d\n", action.Who, action.Count)
	w.print(out, "o-3")
	return w.check()
}

// wait polls until ready returns true or an error, or ctx is done.
func wait(ctx context.Context, ready func() (bool, error)) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := ready(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
