// Dead-letters shows what becomes of deliveries that fail, and what a key is for. Three
// orders are placed, paid and shipped. The order is the key: what happens to one order
// reaches the warehouse one after the other, and no order waits for another one.
//
//   - nothing is wrong with o-1
//   - the payment of o-2 fails for the moment: it is tried again after growing pauses, and
//     the shipment waits for it
//   - o-3 is refused for good: it is dead at once. With OnDeadHalt the later ones of its key
//     wait for a person; by default they would go on
//
// The operator asks why, has the warehouse repaired, and requeues what is dead.
// Then o-3 arrives too, in its order.
//
//	go run ./examples/dead-letters
//
// It ends with code 1 if something arrives twice, not at all, or in another order.
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

// What happens to an order.
type (
	OrderPlaced  struct{ Order string }
	OrderPaid    struct{ Order string }
	OrderShipped struct{ Order string }
)

func main() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the output shows the rest
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
	hall := newWarehouse()
	sink := o.Deliver("warehouse", hall, "order.*")
	sink.Retry = forwarder.Retry{Initial: 20 * time.Millisecond, Max: time.Second, MaxAttempts: 50}
	sink.OnDead = forwarder.OnDeadHalt
	o.Config.Lease = 2 * time.Second // what people do is noticed within a twentieth of it
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
	err = operate(ctx, out, db, hall)
	stop()
	return errors.Join(err, <-ended)
}

// publish publishes all that happens to the three orders.
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

// operate is what the person on call does: waybill parked list, why, parked requeue.
func operate(ctx context.Context, out io.Writer, db *sql.DB, hall *warehouse) error {
	s, err := sqlite.Open(ctx, db, sqlite.Config{})
	if err != nil {
		return err
	}
	operator := admin.New(s, "ada")

	if err := wait(ctx, func() (bool, error) {
		parked, err := operator.Parked(ctx, admin.Filter{Key: "o-3", States: []store.State{store.StateDead, store.StateBlocked}}, store.ParkedPlace{}, 10)
		return len(parked) == 3 && hall.shipped("o-1") && hall.shipped("o-2"), err
	}); err != nil {
		return err
	}
	hall.print(out, "o-1", "o-2", "o-3")
	answer, err := operator.Why(ctx, "o-3-shipped", admin.Routing{})
	if err != nil {
		return err
	}
	for _, v := range answer.Verdicts {
		fmt.Fprintf(out, "why is o-3 not shipped? %s: %s\n", v.Sink, v.Text)
	}

	hall.repair()
	plan, err := operator.Requeue(ctx, admin.Filter{Sink: "warehouse", Error: "too heavy"})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "the warehouse is repaired; to be requeued: %d\n", plan.Total())
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
	fmt.Fprintf(out, "%s has requeued %d\n", action.Who, action.Count)
	hall.print(out, "o-3")
	return hall.check()
}

// wait asks until the answer is yes.
func wait(ctx context.Context, ask func() (bool, error)) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if yes, err := ask(); yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
