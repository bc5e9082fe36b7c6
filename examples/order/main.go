// Order shows what a key is for. Three orders are placed, paid and shipped; what
// happened to one order reaches the sink one after the other, in its order, while
// the orders go in parallel. One delivery fails twice: the later ones of its order
// wait for it, and the other orders do not.
//
//	go run ./examples/order
//
// It ends with code 1 if an order's notifications come in another order.
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
	"slices"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// What happens to an order.
type (
	OrderPlaced  struct{ OrderID string }
	OrderPaid    struct{ OrderID string }
	OrderShipped struct{ OrderID string }
)

// Their keys: what has one key keeps its order.
func (o OrderPlaced) Key() string  { return o.OrderID }
func (o OrderPaid) Key() string    { return o.OrderID }
func (o OrderShipped) Key() string { return o.OrderID }

func main() {
	slog.SetLogLoggerLevel(slog.LevelError) // the output tells the rest
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "order:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	folder, err := os.MkdirTemp("", "order")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	db, err := sqlite.OpenDB(filepath.Join(folder, "order.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := sqlite.Migrate(ctx, db, sqlite.Config{}); err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, db, sqlite.Config{})
	if err != nil {
		return err
	}
	types := registry.New()
	err = errors.Join(
		registry.Register[OrderPlaced](types, "order.placed", registry.Key(OrderPlaced.Key)),
		registry.Register[OrderPaid](types, "order.paid", registry.Key(OrderPaid.Key)),
		registry.Register[OrderShipped](types, "order.shipped", registry.Key(OrderShipped.Key)),
	)
	if err != nil {
		return err
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w := &warehouse{out: out, wanted: 9, done: stop, taken: make(map[string][]string)}
	engine, err := forwarder.New(forwarder.Config{
		Store: store, Types: types,
		Routes: route.Routes{"order.*": route.To("warehouse")},
		Sinks: map[string]forwarder.Sink{"warehouse": {
			Sink:        w,
			Parallelism: forwarder.Parallelism{Threshold: 8}, // at most 8 at once, and never two of one order
			Retry:       forwarder.Retry{Initial: 200 * time.Millisecond},
		}},
	})
	if err != nil {
		return err
	}
	publisher, err := outbox.New(types, store, outbox.Config{Wake: engine.Wake})
	if err != nil {
		return err
	}
	for _, id := range []string{"o-1", "o-2", "o-3"} {
		err := publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
			return publisher.Publish(ctx, tx, OrderPlaced{id}, OrderPaid{id}, OrderShipped{id})
		})
		if err != nil {
			return err
		}
	}
	if err := engine.Run(ctx); err != nil {
		return err
	}
	return w.check()
}

// warehouse is a sink that is told what happens to orders.
type warehouse struct {
	out    io.Writer
	wanted int
	done   func() // called once all that is wanted is taken

	mu     sync.Mutex
	fails  int
	taken  map[string][]string // types by order
	orders []string            // whose last notification was taken, in that order
}

func (w *warehouse) Deliver(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.Key == "o-2" && d.Type == "order.paid" && w.fails < 2 {
		w.fails++
		fmt.Fprintf(w.out, "%s %s: attempt %d fails\n", d.Key, d.Type, d.Attempt)
		return "", sinks.Transient(errors.New("the scanner is jammed"))
	}
	fmt.Fprintf(w.out, "%s %s: taken\n", d.Key, d.Type)
	w.taken[d.Key] = append(w.taken[d.Key], d.Type)
	if len(w.taken[d.Key]) == 3 {
		w.orders = append(w.orders, d.Key)
	}
	if w.wanted--; w.wanted == 0 {
		w.done()
	}
	return "taken", nil
}

// check says what came in a wrong order.
func (w *warehouse) check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var wrong []error
	for _, id := range []string{"o-1", "o-2", "o-3"} {
		if got := w.taken[id]; !slices.Equal(got, []string{"order.placed", "order.paid", "order.shipped"}) {
			wrong = append(wrong, fmt.Errorf("%s came as %v", id, got))
		}
	}
	if len(w.orders) > 0 && w.orders[len(w.orders)-1] != "o-2" {
		wrong = append(wrong, errors.New("an order waited for another one"))
	}
	return errors.Join(wrong...)
}
