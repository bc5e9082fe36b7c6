package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/inbox"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks/function"
)

// OrderPlaced goes to the payments.
type OrderPlaced struct {
	Order, Product string
	Cents          int
}

// OrderPaid goes to the warehouse.
type OrderPaid struct{ Order string }

// Key keeps what happens to one order in its order.
func (o OrderPlaced) Key() string { return o.Order }

// Key is that of OrderPlaced.
func (o OrderPaid) Key() string { return o.Order }

// tables are the shop's own; those of the outbox stand beside them.
const tables = `
	CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, product text NOT NULL, cents integer NOT NULL);
	CREATE TABLE IF NOT EXISTS payments (order_id text NOT NULL, cents integer NOT NULL)`

// shop places orders, and has them paid and packed.
type shop struct {
	pool      *pgxpool.Pool
	publisher *outbox.Publisher
	forwarder *forwarder.Forwarder
}

// open makes the tables and what is needed to publish and forward. Db is a handle of
// package sql over the pool, for the outbox's store. Pack is called for each order that is
// paid, and may be called twice.
func open(ctx context.Context, pool *pgxpool.Pool, db *sql.DB, pack func(OrderPaid)) (*shop, error) {
	if _, err := pool.Exec(ctx, tables); err != nil {
		return nil, err
	}
	s := &shop{pool: pool}
	if _, err := postgres.Migrate(ctx, db, postgres.Config{}); err != nil {
		return nil, err
	}
	store, err := postgres.Open(ctx, db, postgres.Config{})
	if err != nil {
		return nil, err
	}
	types := registry.New()
	if err := errors.Join(
		registry.Register[OrderPlaced](types, "order.placed", registry.Key(OrderPlaced.Key)),
		registry.Register[OrderPaid](types, "order.paid", registry.Key(OrderPaid.Key)),
	); err != nil {
		return nil, err
	}
	// The publisher wakes the forwarder, which has a handler that publishes.
	if s.publisher, err = outbox.New(types, store, outbox.Config{Wake: func() { s.forwarder.Wake() }}); err != nil {
		return nil, err
	}
	payments := inbox.HandleTx(inbox.Config{Inbox: inbox.New(store), Pgx: inbox.Pgx(pool, pgx.TxOptions{}), Publisher: s.publisher}, types, s.pay)
	warehouse := function.Handle(types, func(_ context.Context, o OrderPaid) error {
		pack(o)
		return nil
	})
	if s.forwarder, err = forwarder.New(forwarder.Config{
		Store: store, Types: types,
		Sinks:  map[string]forwarder.Sink{"payments": {Sink: payments}, "warehouse": {Sink: warehouse}},
		Routes: route.Routes{"order.placed": route.To("payments"), "order.paid": route.To("warehouse")},
	}); err != nil {
		return nil, err
	}
	return s, nil
}

// place stores the order and publishes it: both, or neither.
func (s *shop) place(ctx context.Context, o OrderPlaced) error {
	return outbox.RunInPgx(ctx, s.publisher, s.pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders VALUES ($1, $2, $3)`, o.Order, o.Product, o.Cents); err != nil {
			return err
		}
		return s.publisher.Publish(ctx, outbox.Pgx(tx), o)
	})
}

// pay has its effects once, however often the order is delivered.
func (s *shop) pay(ctx context.Context, tx pgx.Tx, o OrderPlaced) error {
	if _, err := tx.Exec(ctx, `INSERT INTO payments VALUES ($1, $2)`, o.Order, o.Cents); err != nil {
		return err
	}
	return s.publisher.Publish(ctx, outbox.Pgx(tx), OrderPaid{Order: o.Order})
}
