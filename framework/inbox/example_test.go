package inbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/waybill-go/waybill/framework/inbox"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
)

type OrderPlaced struct{ Order string }

type PaymentDue struct {
	Order string
	Cents int
}

// exampleShop is a database with an outbox and its types.
func exampleShop() (db *sql.DB, store *sqlite.Store, types *registry.Registry, publisher *outbox.Publisher, end func()) {
	folder, err := os.MkdirTemp("", "shop")
	check(err)
	db, err = sqlite.OpenDB(filepath.Join(folder, "shop.db"))
	check(err)
	_, err = db.Exec(`CREATE TABLE payments (paid_for TEXT)`)
	check(err)
	_, err = sqlite.Migrate(context.Background(), db, sqlite.Config{})
	check(err)
	store, err = sqlite.Open(context.Background(), db, sqlite.Config{})
	check(err)
	types = registry.New()
	check(registry.Register[OrderPlaced](types, "order.placed"))
	check(registry.Register[PaymentDue](types, "payment.due"))
	publisher, err = outbox.New(types, store, outbox.Config{})
	check(err)
	return db, store, types, publisher, func() { check(db.Close()); check(os.RemoveAll(folder)) }
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Normally the engine makes deliveries. The example makes the same one twice.
func ExampleHandleTx() {
	db, store, types, publisher, end := exampleShop()
	defer end()

	payments := inbox.HandleTx(inbox.Config{Inbox: inbox.New(store), DB: db, Publisher: publisher}, types,
		func(ctx context.Context, tx *sql.Tx, o OrderPlaced) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO payments VALUES ($1)`, o.Order); err != nil {
				return err
			}
			return publisher.Publish(ctx, tx, PaymentDue{Order: o.Order, Cents: 700}) // this also happens once
		})

	for range 2 {
		receipt, err := payments.Deliver(context.Background(), &notification.Delivery{Sink: "payments", Attempt: 1, Envelope: &notification.Envelope{
			ID: "n-1", Type: "order.placed", Version: 1, Payload: []byte(`{"Order":"o-17"}`),
		}})
		fmt.Printf("%q %v\n", receipt, err)
	}
	var paid int
	check(db.QueryRow(`SELECT count(*) FROM payments`).Scan(&paid))
	fmt.Println(paid, "payment")
	// Output:
	// "" <nil>
	// "handled before" <nil>
	// 1 payment
}

// A separate process, such as one that reads a Kafka topic, asks for each id.
func ExampleInbox_Once() {
	db, store, _, _, end := exampleShop()
	defer end()
	ctx := context.Background()
	box := inbox.New(store)

	for range 2 {
		first, err := box.Once(ctx, db, "payments", "n-1", func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO payments VALUES ('o-17')`)
			return err
		})
		fmt.Println(first, err)
	}
	// Output:
	// true <nil>
	// false <nil>
}
