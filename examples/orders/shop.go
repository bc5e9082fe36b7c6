package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/inbox"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
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
var tables = []string{
	`CREATE TABLE IF NOT EXISTS orders (id varchar(100) PRIMARY KEY, product varchar(100) NOT NULL, cents integer NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS payments (order_id varchar(100) NOT NULL, cents integer NOT NULL)`,
}

// shop places orders, and has them paid and packed.
type shop struct {
	database
	publisher *outbox.Publisher
	forwarder *forwarder.Forwarder
}

// open makes the tables and what is needed to publish and forward. Pack is called for each
// order that is paid, and may be called twice.
func open(ctx context.Context, d database, pack func(OrderPaid)) (*shop, error) {
	for _, table := range tables {
		if _, err := d.db.ExecContext(ctx, table); err != nil {
			return nil, err
		}
	}
	store, err := d.migrate(ctx, d.db)
	if err != nil {
		return nil, err
	}
	s := &shop{database: d}
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
	payments := inbox.HandleTx(inbox.Config{Inbox: inbox.New(store), DB: d.db, Publisher: s.publisher}, types, s.pay)
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
	return s.publisher.RunInTx(ctx, s.db, nil, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.insert(ctx, tx, "orders", o.Order, o.Product, o.Cents); err != nil {
			return err
		}
		return s.publisher.Publish(ctx, tx, o)
	})
}

// pay has its effects once, however often the order is delivered.
func (s *shop) pay(ctx context.Context, tx *sql.Tx, o OrderPlaced) error {
	if err := s.insert(ctx, tx, "payments", o.Order, o.Cents); err != nil {
		return err
	}
	return s.publisher.Publish(ctx, tx, OrderPaid{Order: o.Order})
}
