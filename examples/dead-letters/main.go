// Dead-letters is what an operator does when a destination refuses deliveries.
//
// A warehouse takes orders by their quantity, and a bug in it refuses those of more
// than nine. They die: retrying what is refused makes no sense. The operator counts
// them, asks why one is dead, has the warehouse repaired, and requeues them. Then
// everything is delivered, and the table of actions shows who has done what.
//
//	go run ./examples/dead-letters
//
// The same by hand is waybill parked list, why, parked requeue and actions.
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
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

func main() {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the output tells the rest
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "dead-letters:", err)
		os.Exit(1)
	}
}

// OrderPlaced is what is published.
type OrderPlaced struct {
	Number   int `json:"number"`
	Quantity int `json:"quantity"`
}

// orders is how many are placed; every third is too large for the warehouse.
const orders = 30

func run(ctx context.Context, w io.Writer) error {
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
	if _, err := sqlite.Migrate(ctx, db, sqlite.Config{}); err != nil {
		return err
	}
	s, err := sqlite.Open(ctx, db, sqlite.Config{Receipts: true})
	if err != nil {
		return err
	}
	types := registry.New()
	if err := registry.Register[OrderPlaced](types, "order.placed"); err != nil {
		return err
	}
	hall := &warehouse{types: types, taken: make(map[int]int)}
	engine, err := forwarder.New(forwarder.Config{
		Store: s, Types: types,
		Sinks:  map[string]forwarder.Sink{"warehouse": {Sink: hall}},
		Routes: route.Routes{"order.*": route.To("warehouse")},
		Lease:  2 * time.Second, // what people do is noticed within a twentieth of it
	})
	if err != nil {
		return err
	}
	publisher, err := outbox.New(types, s, outbox.Config{Wake: engine.Wake})
	if err != nil {
		return err
	}
	if err := place(ctx, db, publisher); err != nil {
		return err
	}

	forwarding, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(forwarding) }()
	err = operate(ctx, w, s, hall)
	stop()
	return errors.Join(err, <-ended)
}

func place(ctx context.Context, db *sql.DB, publisher *outbox.Publisher) error {
	return publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		for n := range orders {
			order := OrderPlaced{Number: n + 1, Quantity: 1}
			if n%3 == 0 {
				order.Quantity = 12
			}
			if err := publisher.Publish(ctx, tx, order); err != nil {
				return err
			}
		}
		return nil
	})
}

// operate is what the person on call does.
func operate(ctx context.Context, w io.Writer, s admin.Store, hall *warehouse) error {
	operator := admin.New(s, "ada")
	refused := admin.Filter{Error: "too many"}
	dead, err := await(ctx, func() (bool, error) {
		counts, err := operator.Count(ctx, refused)
		return len(counts) == 1 && counts[0].Count == orders/3, err
	}, func() ([]store.ParkedDelivery, error) { return operator.Parked(ctx, refused, store.ParkedPlace{}, 1) })
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%d of %d orders are dead.\n", orders/3, orders)

	answer, err := operator.Why(ctx, dead[0].Envelope.ID, admin.Routing{})
	if err != nil {
		return err
	}
	for _, v := range answer.Verdicts {
		fmt.Fprintf(w, "Why is the first one? %s: %s\n", v.Sink, v.LastError)
	}

	hall.repair()
	plan, err := operator.Requeue(ctx, refused)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "The warehouse is repaired; to be requeued: %d.\n", plan.Total())
	action, err := plan.Run(ctx, nil)
	if err != nil {
		return err
	}

	left, err := await(ctx, func() (bool, error) {
		counts, err := operator.Count(ctx, admin.Filter{})
		return len(counts) == 0, err
	}, hall.stock)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s has requeued %d; the warehouse has %d of %d orders, each once.\n", action.Who, action.Count, len(left), orders)
	for number, times := range left {
		if times != 1 {
			return fmt.Errorf("order %d came %d times", number, times)
		}
	}
	if len(left) != orders {
		return errors.New("orders are missing")
	}
	return nil
}

// await asks until it is so, and then gives the result.
func await[T any](ctx context.Context, so func() (bool, error), then func() (T, error)) (result T, err error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := so()
		if err != nil {
			return result, err
		}
		if ok {
			return then()
		}
		select {
		case <-ctx.Done():
			return result, ctx.Err()
		case <-tick.C:
		}
	}
}

// warehouse is the destination.
type warehouse struct {
	types *registry.Registry

	mu       sync.Mutex
	repaired bool
	taken    map[int]int // times that an order came, by its number
}

var _ sinks.Sink = (*warehouse)(nil)

// Deliver refuses large orders until it is repaired.
func (h *warehouse) Deliver(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
	decoded, err := registry.Decode[OrderPlaced](h.types, d.Envelope)
	if err != nil {
		return "", sinks.Permanent(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if decoded.Quantity > 9 && !h.repaired {
		return "", sinks.Permanent(fmt.Errorf("%d are too many", decoded.Quantity))
	}
	h.taken[decoded.Number]++
	return notification.Receipt(fmt.Sprint("shelf ", decoded.Number)), nil
}

func (h *warehouse) repair() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.repaired = true
}

// stock is how often each order came.
func (h *warehouse) stock() (map[int]int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := make(map[int]int, len(h.taken))
	for number, times := range h.taken {
		taken[number] = times
	}
	return taken, nil
}
