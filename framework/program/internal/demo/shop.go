package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
)

const (
	// items is how many different things the shop sells. One in soldOutEvery is
	// sold out, which the shop notices only after it published the order.
	items        = 100
	soldOutEvery = 10
	// regulars is how many customers place orders at any time; each new one takes
	// the place of another. So every key has several notifications on their way.
	regulars = 50
	// signUpEvery is after how many orders a customer signs up.
	signUpEvery = 10
)

// errOutOfStock is why the shop rolls an order back.
var errOutOfStock = errors.New("out of stock")

// shop is an application with an outbox. It places orders and writes into its
// ledger what it committed and what it rolled back.
type shop struct {
	db        *database
	publisher *outbox.Publisher
	ledger    *ledger
	tills     int // orders that are placed at the same time

	signUps atomic.Int64
	orders  atomic.Int64

	mu        sync.Mutex
	customers []Customer // the regulars
}

// schema is the shop's own tables, beside those of the outbox.
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

// open fills the shelves.
func (s *shop) open(ctx context.Context) error {
	for _, statement := range strings.Split(schema, ";") {
		if _, err := s.db.DB.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("make the shop's tables: %w", err)
		}
	}
	for i := range items {
		units := 1_000_000_000
		if i%soldOutEvery == 3 { // soon, for a short demo
			units = 0
		}
		query, args := s.db.SQL(`INSERT INTO waybill_demo_stock (item, units) VALUES ($1, $2)`, itemName(i), units)
		if _, err := s.db.DB.ExecContext(ctx, query, args...); err != nil {
			return fmt.Errorf("fill the shelves: %w", err)
		}
	}
	return nil
}

func itemName(i int) string { return fmt.Sprintf("item %02d", i) }

// trade places orders at a rate until ctx is done; 0 is as fast as it can. An
// order that was begun is brought to its end.
func (s *shop) trade(ctx context.Context, rate int) error {
	began := time.Now()
	var turns atomic.Int64
	tills, ctx := errgroup.WithContext(ctx)
	for range s.tills {
		tills.Go(func() error {
			for {
				turn := turns.Add(1) - 1
				if rate > 0 && !sleepUntil(ctx, began.Add(time.Duration(turn)*time.Second/time.Duration(rate))) {
					return nil
				}
				if ctx.Err() != nil {
					return nil
				}
				if err := s.serve(context.WithoutCancel(ctx), turn); err != nil {
					return err
				}
			}
		})
	}
	return tills.Wait()
}

// serve is one turn at a till.
func (s *shop) serve(ctx context.Context, turn int64) error {
	if turn%signUpEvery == 0 {
		if err := s.signUp(ctx); err != nil {
			return fmt.Errorf("sign a customer up: %w", err)
		}
	}
	customer, some := s.anyCustomer()
	if !some {
		return nil // the first one is still signing up at another till
	}
	if err := s.placeOrder(ctx, customer); err != nil {
		return fmt.Errorf("place an order: %w", err)
	}
	return nil
}

// signUp commits a new customer together with the notification of it.
func (s *shop) signUp(ctx context.Context) error {
	n := s.signUps.Add(1)
	customer := Customer{ID: fmt.Sprintf("c-%d", n), Name: fmt.Sprintf("Customer %d", n), Email: fmt.Sprintf("customer%d@example.com", n)}
	err := s.inTx(ctx, func(ctx context.Context, tx *transaction) error {
		_, err := tx.exec(ctx, `INSERT INTO waybill_demo_customers (id, name, email) VALUES ($1, $2, $3)`,
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

// placeOrder commits an order together with the notifications of it, or rolls
// all of them back when the item turns out to be sold out.
func (s *shop) placeOrder(ctx context.Context, customer Customer) error {
	n := s.orders.Add(1)
	order := OrderPlaced{
		Order:    fmt.Sprintf("o-%d", n),
		Customer: customer,
		Item:     itemName(int(n % items)),
		Quantity: 1 + rand.IntN(3),
	}
	err := s.inTx(ctx, func(ctx context.Context, tx *transaction) error {
		// The customer's row is locked from here on, so a customer's orders are
		// committed one after the other, as their numbers say.
		number, err := tx.nextOrder(ctx, customer)
		if err != nil {
			return err
		}
		_, err = tx.exec(ctx, `INSERT INTO waybill_demo_orders (id, customer, number, item, quantity) VALUES ($1, $2, $3, $4, $5)`,
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
		return nil // that is business
	}
	return err
}

// nextOrder numbers the orders of a customer, whose row it locks.
func (tx *transaction) nextOrder(ctx context.Context, customer Customer) (number int, err error) {
	const update = `UPDATE waybill_demo_customers SET orders = orders + 1 WHERE id = $1`
	text := update + ` RETURNING orders`
	if tx.db.IsMySQL() { // which has none
		if _, err := tx.exec(ctx, update, customer.ID); err != nil {
			return 0, err
		}
		text = `SELECT orders FROM waybill_demo_customers WHERE id = $1`
	}
	query, args := tx.db.SQL(text, customer.ID)
	err = tx.QueryRowContext(ctx, query, args...).Scan(&number)
	return number, err
}

// exec runs a statement with numbered placeholders.
func (tx *transaction) exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	query, args = tx.db.SQL(query, args...)
	return tx.ExecContext(ctx, query, args...)
}

// takeFromShelf gives errOutOfStock where there is not enough.
func (tx *transaction) takeFromShelf(ctx context.Context, item string, quantity int) error {
	result, err := tx.exec(ctx, `UPDATE waybill_demo_stock SET units = units - $1 WHERE item = $2 AND units >= $1`, quantity, item)
	if err != nil {
		return err
	}
	if taken, err := result.RowsAffected(); err != nil || taken == 1 {
		return err
	}
	return errOutOfStock
}

// transaction is a database transaction that remembers what was published in it.
type transaction struct {
	*sql.Tx
	db        *database
	publisher *outbox.Publisher
	published []entry
}

// publish publishes n under an id that the ledger will know it by.
func (tx *transaction) publish(ctx context.Context, n any, e entry) error {
	e.ID = notification.NewID()
	tx.published = append(tx.published, e)
	return tx.publisher.Publish(ctx, tx, outbox.With(n, outbox.ID(e.ID)))
}

// inTx is RunInTx with an entry in the ledger of how it ended. A commit that
// failed may have happened all the same; its error ends the demo.
func (s *shop) inTx(ctx context.Context, f func(context.Context, *transaction) error) error {
	var published []entry
	err := s.publisher.RunInTx(ctx, s.db.DB, nil, func(ctx context.Context, tx *sql.Tx) error {
		t := &transaction{Tx: tx, db: s.db, publisher: s.publisher}
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

// welcome makes a customer one of the regulars.
func (s *shop) welcome(customer Customer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.customers) < regulars {
		s.customers = append(s.customers, customer)
		return
	}
	s.customers[rand.IntN(regulars)] = customer
}

func (s *shop) anyCustomer() (c Customer, some bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.customers) == 0 {
		return c, false
	}
	return s.customers[rand.IntN(len(s.customers))], true
}

// sleepUntil returns false once ctx is done.
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
