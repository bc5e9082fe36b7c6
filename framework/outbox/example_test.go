package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
)

// Customer is an aggregate with domain events. It does not depend on Waybill.
type Customer struct {
	ID, City string
	version  int
	events   []any
}

type CustomerMoved struct{ ID, From, To string }

type CustomerGreeted struct{}

func (c *Customer) Move(city string) {
	c.events = append(c.events, CustomerMoved{ID: c.ID, From: c.City, To: city}, CustomerGreeted{})
	c.City = city
}

func (c *Customer) Events() []any     { return c.events }
func (c *Customer) ClearEvents(n int) { c.events = c.events[n:] }

// AddressChanged and InvoicesToResend are notifications.
type AddressChanged struct{ Customer, City string }

type InvoicesToResend struct{ Customer string }

var errConflict = errors.New("another transaction was faster")

// save stores a customer, unless the version of its row has changed since it was loaded.
func save(ctx context.Context, tx outbox.Tx, c *Customer) error {
	result, err := tx.ExecContext(ctx, `UPDATE customers SET city = $1, version = version + 1 WHERE id = $2 AND version = $3`, c.City, c.ID, c.version)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return errConflict
}

type tenantKey struct{}

// shop is a database with a customer, and a publisher.
func shop() (db *sql.DB, publisher *outbox.Publisher, end func()) {
	folder, err := os.MkdirTemp("", "shop")
	check(err)
	db, err = sqlite.OpenDB(filepath.Join(folder, "shop.db"))
	check(err)
	_, err = db.Exec(`CREATE TABLE customers (id TEXT, city TEXT, version INTEGER); INSERT INTO customers VALUES ('c-1', 'London', 1)`)
	check(err)
	_, err = sqlite.Migrate(context.Background(), db, sqlite.Config{})
	check(err)
	log, err := sqlite.Open(context.Background(), db, sqlite.Config{})
	check(err)
	types := registry.New()
	check(registry.Register[AddressChanged](types, "customer.address-changed"))
	check(registry.Register[InvoicesToResend](types, "invoices.to-resend"))
	publisher, err = outbox.New(types, log, outbox.Config{
		Events: []outbox.Mapping{
			outbox.Map(func(_ context.Context, e CustomerMoved) ([]any, error) {
				return []any{AddressChanged{Customer: e.ID, City: e.To}, InvoicesToResend{Customer: e.ID}}, nil
			}),
			outbox.Ignore[CustomerGreeted](), // not published
		},
		Metadata: func(ctx context.Context) map[string]string {
			if cause := notification.Cause(ctx); cause != nil { // set in a handler of a notification
				return map[string]string{notification.MetadataTenant: cause.Metadata.Get(notification.MetadataTenant)}
			}
			tenant, _ := ctx.Value(tenantKey{}).(string)
			return map[string]string{notification.MetadataTenant: tenant} // an empty value is left out
		},
	})
	check(err)
	return db, publisher, func() { check(errors.Join(db.Close(), os.RemoveAll(folder))) }
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func show(db *sql.DB) {
	rows, err := db.Query(`SELECT type, payload, json_extract(metadata, '$.tenant') FROM outbox`)
	check(err)
	defer rows.Close()
	for rows.Next() {
		var typ, payload string
		var tenant sql.NullString
		check(rows.Scan(&typ, &payload, &tenant))
		fmt.Println(typ, payload, tenant.String)
	}
	check(rows.Err())
}

func ExamplePublisher_RunInTx() {
	db, publisher, end := shop()
	defer end()
	ctx := context.WithValue(context.Background(), tenantKey{}, "acme")
	err := publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE customers SET city = 'Paris' WHERE id = 'c-1'`); err != nil {
			return err
		}
		return publisher.Publish(ctx, tx, AddressChanged{Customer: "c-1", City: "Paris"})
	})
	fmt.Println(err)
	show(db)
	// Output:
	// <nil>
	// customer.address-changed {"Customer":"c-1","City":"Paris"} acme
}

func ExamplePublisher_RunUnit() {
	db, publisher, end := shop()
	defer end()
	ctx := context.WithValue(context.Background(), tenantKey{}, "acme")
	customer := &Customer{ID: "c-1", City: "London", version: 1}

	customer.Move("Paris")
	err := publisher.RunUnit(ctx, db, nil, func(ctx context.Context, tx *sql.Tx, u *outbox.Unit) error {
		u.Track(customer)
		return save(ctx, tx, customer)
	})
	fmt.Println(err, len(customer.Events()), "events left")
	show(db)

	// The customer's version is outdated now, so its notifications are rolled back too.
	customer.Move("Rome")
	err = publisher.RunUnit(ctx, db, nil, func(ctx context.Context, tx *sql.Tx, u *outbox.Unit) error {
		u.Track(customer)
		return save(ctx, tx, customer)
	})
	fmt.Println(err)
	// Output:
	// <nil> 0 events left
	// customer.address-changed {"Customer":"c-1","City":"Paris"} acme
	// invoices.to-resend {"Customer":"c-1"} acme
	// another transaction was faster
}

// A Unit works with any transactions of the application.
func ExampleUnit() {
	db, publisher, end := shop()
	defer end()
	ctx := context.WithValue(context.Background(), tenantKey{}, "acme")
	customer := &Customer{ID: "c-1", City: "London", version: 1}
	move := func() error {
		customer.Move("Paris")

		unit := publisher.NewUnit()
		unit.Track(customer)
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := save(ctx, tx, customer); err != nil {
			return err
		}
		if err := unit.Publish(ctx, tx); err != nil { // the last step in the transaction
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		unit.Committed() // clears the events, and wakes the forwarders
		return nil
	}

	fmt.Println(move())
	show(db)
	// Output:
	// <nil>
	// customer.address-changed {"Customer":"c-1","City":"Paris"} acme
	// invoices.to-resend {"Customer":"c-1"} acme
}

// Order is an aggregate that embeds a Recorder, and records notifications themselves.
type Order struct {
	outbox.Recorder
	ID string
}

func (o *Order) Resend() { o.Record(InvoicesToResend{Customer: o.ID}) }

func ExampleRecorder() {
	order := &Order{ID: "c-1"}
	order.Resend()
	fmt.Printf("%+v\n", order.Events())
	// Output: [{Customer:c-1}]
}
