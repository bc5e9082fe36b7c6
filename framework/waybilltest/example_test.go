package waybilltest_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/waybilltest"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks/function"
)

type OrderPlaced struct{ ID string }

// placeOrder is the code under test.
func placeOrder(ctx context.Context, db *sql.DB, p *outbox.Publisher, id string) error {
	return p.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		return p.Publish(ctx, tx, outbox.With(OrderPlaced{ID: id}, outbox.DeliverAt(time.Now().Add(time.Hour))))
	})
}

func Example() {
	test := func(t testing.TB) { // in an application: func TestPlaceOrder(t *testing.T)
		types := registry.New()
		if err := registry.Register[OrderPlaced](types, "order.placed"); err != nil {
			t.Fatal(err)
		}
		o := waybilltest.New(t, types)
		if err := placeOrder(t.Context(), o.DB, o.Publisher, "o-17"); err != nil {
			t.Fatal(err)
		}
		o.RequirePublished(OrderPlaced{ID: "o-17"})

		warehouse := function.Handle(types, func(_ context.Context, n OrderPlaced) error {
			fmt.Println("reserve the goods of", n.ID)
			return nil
		})
		forwarding := forwarder.Config{
			Store:  o.Store,
			Routes: route.Routes{"*": route.To("warehouse")},
			Sinks:  map[string]forwarder.Sink{"warehouse": {Sink: warehouse}},
		}
		waybilltest.Drain(t, forwarding)
		fmt.Println("an hour passes")
		waybilltest.Advance(t, forwarding, time.Hour)
	}
	runTest(test)
	// Output:
	// an hour passes
	// reserve the goods of o-17
}

// exampleTB is a testing.TB for an example.
type exampleTB struct {
	testing.TB
	ctx     context.Context
	cleanup []func()
}

// runTest runs a test in an example, and panics if it fails.
func runTest(test func(t testing.TB)) {
	ctx, cancel := context.WithCancel(context.Background())
	t := &exampleTB{ctx: ctx}
	defer func() {
		cancel()
		for i := len(t.cleanup) - 1; i >= 0; i-- {
			t.cleanup[i]()
		}
	}()
	test(t)
}

func (t *exampleTB) Context() context.Context { return t.ctx }
func (t *exampleTB) Cleanup(f func())         { t.cleanup = append(t.cleanup, f) }
func (t *exampleTB) Helper()                  {}
func (t *exampleTB) Output() io.Writer        { return io.Discard }
func (t *exampleTB) FailNow()                 { panic("the test failed") }
func (t *exampleTB) Fatal(args ...any)        { panic(fmt.Sprint(args...)) }

func (t *exampleTB) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (t *exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (t *exampleTB) TempDir() string {
	folder, err := os.MkdirTemp("", "shop")
	if err != nil {
		panic(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}
