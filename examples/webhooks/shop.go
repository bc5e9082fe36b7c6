package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"sync"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

const tables = `
	CREATE TABLE customers (name TEXT PRIMARY KEY);
	CREATE TABLE orders (number INTEGER PRIMARY KEY, customer TEXT NOT NULL, product TEXT NOT NULL);`

// tenants are the companies that order at the shop.
var tenants = []string{"acme", "globex"}

// OrderPlaced is the notification that customers get.
type OrderPlaced struct {
	Order   string `json:"order"`
	Product string `json:"product"`
}

// shop is the application.
type shop struct {
	db        *sql.DB
	outbox    *waybill.Outbox
	out       io.Writer
	customers customers

	mu       sync.Mutex
	sessions map[string]string // who is logged in, by the value of the cookie
}

// open declares what goes where.
func (s *shop) open(ctx context.Context) error {
	o := s.outbox
	waybill.Register[OrderPlaced](o, "order.placed", waybill.Key(func(n OrderPlaced) string { return n.Order }))
	hooks, err := webhooks.New(sinks.Instance{Types: o.Types()}, webhooks.Config{
		// The customers' servers are on this machine. Without these settings only https is accepted,
		// and no address of a private network.
		ClientConfig: httpsink.ClientConfig{AllowHTTP: true, Guard: httpsink.Guard{Mode: httpsink.GuardOff}},
	})
	if err != nil {
		return err
	}
	o.Deliver("customers", hooks, "order.*")

	// The sink publishes that it has disabled an endpoint, and the shop writes to its owner.
	if err := webhooks.Register(o.Types()); err != nil {
		return err
	}
	waybill.Handle(o, "mail", func(_ context.Context, n webhooks.EndpointDisabled) error {
		_, err := fmt.Fprintf(s.out, "mail to %s: %s gets nothing any more, since %s\n", n.Tenant, n.URL, n.Reason)
		return err
	})
	if err := o.Migrate(ctx); err != nil {
		return err
	}
	return o.Open(ctx)
}

// signUp stores a customer and its first endpoint, both or neither.
func (s *shop) signUp(ctx context.Context, c *customer) error {
	return s.outbox.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO customers VALUES (?)`, c.name); err != nil {
			return err
		}
		_, secret, err := s.outbox.Endpoints().In(tx).Create(ctx, webhooks.NewEndpoint{
			Tenant:   c.name,
			Settings: webhooks.Settings{URL: c.url, Description: "our server", Types: []string{"order.*"}},
		})
		c.trust(secret) // its owner copies it from the portal
		return err
	})
}

// order stores an order and publishes its notification, both or neither.
func (s *shop) order(ctx context.Context, tenant, product string) error {
	return s.outbox.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var number int
		err := tx.QueryRowContext(ctx, `INSERT INTO orders (customer, product) VALUES (?, ?) RETURNING number`, tenant, product).Scan(&number)
		if err != nil {
			return err
		}
		placed := OrderPlaced{Order: fmt.Sprintf("o-%d", number), Product: product}
		return s.outbox.Publish(ctx, tx, waybill.With(placed, waybill.Metadata("tenant", tenant)))
	})
}

// orders returns the orders of a tenant.
func (s *shop) orders(ctx context.Context, tenant string) (all []OrderPlaced, err error) {
	rows, err := s.db.QueryContext(ctx, `SELECT 'o-' || number, product FROM orders WHERE customer = ? ORDER BY number`, tenant)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var o OrderPlaced
		if err := rows.Scan(&o.Order, &o.Product); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, rows.Err()
}
