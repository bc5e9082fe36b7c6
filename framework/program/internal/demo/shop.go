package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
)

const (
	// items is how many different items the shop sells. One in soldOutEvery is sold out; the shop
	// notices this only after it has published the order.
	items        = 100
	soldOutEvery = 10
	// regulars is how many customers place orders at any time; each new customer replaces another one.
	// So every key has several notifications in flight.
	regulars = 50
	// signUpEvery is the number of orders between two sign-ups.
	signUpEvery = 10
)

// errOutOfStock makes the shop roll back an order.
var errOutOfStock = errors.New("out of stock")

// shop is an application with an outbox. It places orders, and records in its ledger what it has
// committed and rolled back. It is not safe for concurrent use: SQLite has one writer at a time.
type shop struct {
	db        *sql.DB
	publisher *outbox.Publisher
	ledger    *ledger

	signUps, orders int
	customers       []Customer // the regulars
}

// prefix begins the names of the outbox's tables.
const prefix = "waybill_demo"

// schema has the shop's tables, besides those of the outbox.
const schema = `
	CREATE TABLE waybill_demo_customers (
		id     VARCHAR(255) PRIMARY KEY,
		name   VARCHAR(255) NOT NULL,
		email  VARCHAR(255) NOT NULL,
		orders BIGINT NOT NULL DEFAULT 0
	);
	CREATE TABLE waybill_demo_orders (
		id       VARCHAR(255) PRIMARY KEY,
		customer VARCHAR(255) NOT NULL REFERENCES waybill_demo_customers (id),
		number   BIGINT NOT NULL,
		item     VARCHAR(255) NOT NULL,
		quantity BIGINT NOT NULL
	);
	CREATE TABLE waybill_demo_stock (
		item  VARCHAR(255) PRIMARY KEY,
		units BIGINT NOT NULL
	)`

// open creates the shop's tables and fills the shelves.
func (s *shop) open(ctx context.Context) error {
	if _, err := s.db.ExecContext(ctx, schema); err != nil {
		return fmt.Errorf("make the shop's tables: %w", err)
	}
	for i := range items {
		units := 1_000_000_000
		if i%soldOutEvery == 3 { // an early item, so that a short demo sells out, too
			units = 0
		}
		if _, err := s.db.ExecContext(ctx, `INSERT INTO waybill_demo_stock (item, units) VALUES ($1, $2)`, itemName(i), units); err != nil {
			return fmt.Errorf("fill the shelves: %w", err)
		}
	}
	return nil
}

func itemName(i int) string { return fmt.Sprintf("item %02d", i) }

// trade places orders at a rate until ctx is done; 0 means as fast as possible. It finishes orders
// that it has begun.
func (s *shop) trade(ctx context.Context, rate int) error {
	began := time.Now()
	for turn := 0; ; turn++ {
		due := began
		if rate > 0 {
			due = began.Add(time.Duration(turn) * time.Second / time.Duration(rate))
		}
		if !sleepUntil(ctx, due) {
			return nil
		}
		if err := s.serve(context.WithoutCancel(ctx), turn); err != nil {
			return err
		}
	}
}

// serve places one order or signs up one customer.
func (s *shop) serve(ctx context.Context, turn int) error {
	if turn%signUpEvery == 0 {
		if err := s.signUp(ctx); err != nil {
			return fmt.Errorf("sign a customer up: %w", err)
		}
	}
	if err := s.placeOrder(ctx, s.customers[rand.IntN(len(s.customers))]); err != nil {
		return fmt.Errorf("place an order: %w", err)
	}
	return nil
}

// signUp commits a new customer together with its notification.
func (s *shop) signUp(ctx context.Context) error {
	s.signUps++
	n := s.signUps
	customer := Customer{ID: fmt.Sprintf("c-%d", n), Name: fmt.Sprintf("Customer %d", n), Email: fmt.Sprintf("customer%d@example.com", n)}
	err := s.inTx(ctx, func(ctx context.Context, tx *transaction) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO waybill_demo_customers (id, name, email) VALUES ($1, $2, $3)`,
			customer.ID, customer.Name, customer.Email)
		if err != nil {
			return err
		}
		return tx.publish(ctx, CustomerSignedUp{Customer: customer}, entry{Type: customerSignedUp, Key: customer.ID})
	})
	if err == nil {
		s.welcome(customer)
	}
	return err
}

// placeOrder commits an order together with its notifications, or rolls everything back if the item is
// sold out.
func (s *shop) placeOrder(ctx context.Context, customer Customer) error {
	s.orders++
	order := OrderPlaced{
		Order:    fmt.Sprintf("o-%d", s.orders),
		Customer: customer,
		Item:     itemName(s.orders % items),
		Quantity: 1 + rand.IntN(3),
	}
	err := s.inTx(ctx, func(ctx context.Context, tx *transaction) error {
		// This locks the customer's row, so the orders of a customer commit in the order of their
		// numbers.
		number, err := tx.nextOrder(ctx, customer)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO waybill_demo_orders (id, customer, number, item, quantity) VALUES ($1, $2, $3, $4, $5)`,
			order.Order, customer.ID, number, order.Item, order.Quantity)
		if err != nil {
			return err
		}
		if err := tx.publish(ctx, order, entry{Type: orderPlaced, Key: customer.ID, Number: number}); err != nil {
			return err
		}
		if err := tx.takeFromShelf(ctx, order.Item, order.Quantity); err != nil {
			return err
		}
		reserved := StockReserved{Order: order.Order, Item: order.Item, Quantity: order.Quantity}
		return tx.publish(ctx, reserved, entry{Type: stockReserved})
	})
	if errors.Is(err, errOutOfStock) {
		return nil // an expected outcome
	}
	return err
}

// nextOrder returns the next number of a customer's orders, and locks the customer's row.
func (tx *transaction) nextOrder(ctx context.Context, customer Customer) (number int, err error) {
	err = tx.QueryRowContext(ctx, `UPDATE waybill_demo_customers SET orders = orders + 1 WHERE id = $1 RETURNING orders`, customer.ID).Scan(&number)
	return number, err
}

// takeFromShelf returns errOutOfStock if there are not enough items.
func (tx *transaction) takeFromShelf(ctx context.Context, item string, quantity int) error {
	result, err := tx.ExecContext(ctx, `UPDATE waybill_demo_stock SET units = units - $1 WHERE item = $2 AND units >= $1`, quantity, item)
	if err != nil {
		return err
	}
	if taken, err := result.RowsAffected(); err != nil || taken == 1 {
		return err
	}
	return errOutOfStock
}

// transaction is a database transaction that records what is published in it.
type transaction struct {
	*sql.Tx
	publisher *outbox.Publisher
	published []entry
}

// publish publishes n under a new id, for the ledger.
func (tx *transaction) publish(ctx context.Context, n any, e entry) error {
	e.ID = notification.NewID()
	tx.published = append(tx.published, e)
	return tx.publisher.Publish(ctx, tx, outbox.With(n, outbox.ID(e.ID)))
}

// inTx is RunInTx with an entry in the ledger. A failed commit may have happened; so its error ends the
// demo.
func (s *shop) inTx(ctx context.Context, f func(context.Context, *transaction) error) error {
	var published []entry
	err := s.publisher.RunInTx(ctx, s.db, nil, func(ctx context.Context, tx *sql.Tx) error {
		t := &transaction{Tx: tx, publisher: s.publisher}
		err := f(ctx, t)
		published = t.published
		return err
	})
	switch {
	case err == nil:
		s.ledger.commit(time.Now(), published)
	case errors.Is(err, errOutOfStock):
		s.ledger.rollBack(published)
	}
	return err
}

// welcome adds a customer to the regulars.
func (s *shop) welcome(customer Customer) {
	if len(s.customers) < regulars {
		s.customers = append(s.customers, customer)
		return
	}
	s.customers[rand.IntN(regulars)] = customer
}

// sleepUntil sleeps until a time. It returns false if ctx is done first.
func sleepUntil(ctx context.Context, t time.Time) bool {
	pause := time.Until(t)
	if pause <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
