// Package shop is what the examples of brokers have in common: an application that
// stores orders and publishes what happens to them, a consumer, and the story that
// the programs tell with both.
package shop

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// What happens to an order.
type (
	OrderPlaced struct{ OrderID string }
	OrderPaid   struct{ OrderID string }
)

// Their keys: what has one key keeps its order.
func (o OrderPlaced) Key() string { return o.OrderID }
func (o OrderPaid) Key() string   { return o.OrderID }

// The names under which they are registered.
const (
	TypePlaced = "order.placed"
	TypePaid   = "order.paid"
)

// Shop keeps orders in an SQLite file, and beside them the outbox.
type Shop struct {
	folder    string
	db        *sql.DB
	publisher *outbox.Publisher
	engine    *forwarder.Forwarder
}

// Open makes a shop without orders whose notifications go to sink, which it owns.
func Open(ctx context.Context, sink sinks.Sink) (_ *Shop, err error) {
	s := &Shop{}
	if s.folder, err = os.MkdirTemp("", "shop"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.db, err = sqlite.OpenDB(filepath.Join(s.folder, "shop.db")); err != nil {
		return nil, err
	}
	if _, err := sqlite.Migrate(ctx, s.db, sqlite.Config{}); err != nil {
		return nil, err
	}
	if _, err := s.db.ExecContext(ctx, `CREATE TABLE orders (id TEXT PRIMARY KEY, status TEXT)`); err != nil {
		return nil, err
	}
	store, err := sqlite.Open(ctx, s.db, sqlite.Config{})
	if err != nil {
		return nil, err
	}
	types := registry.New()
	err = errors.Join(
		registry.Register[OrderPlaced](types, TypePlaced, registry.Key(OrderPlaced.Key)),
		registry.Register[OrderPaid](types, TypePaid, registry.Key(OrderPaid.Key)),
	)
	if err != nil {
		return nil, err
	}
	s.engine, err = forwarder.New(forwarder.Config{
		Store: store, Types: types,
		Routes: route.Routes{"order.*": route.To("broker")},
		Sinks:  map[string]forwarder.Sink{"broker": {Sink: sink}},
	})
	if err != nil {
		return nil, err
	}
	if s.publisher, err = outbox.New(types, store, outbox.Config{Wake: s.engine.Wake}); err != nil {
		return nil, err
	}
	return s, nil
}

// Forward carries notifications to the sink until ctx ends.
func (s *Shop) Forward(ctx context.Context) error { return s.engine.Run(ctx) }

// Place stores an order and its notification: both, or neither.
func (s *Shop) Place(ctx context.Context, id string) error {
	return s.publisher.RunInTx(ctx, s.db, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, status) VALUES (?, 'placed')`, id); err != nil {
			return err
		}
		return s.publisher.Publish(ctx, tx, OrderPlaced{id})
	})
}

// Pay notes that an order is paid, and publishes it.
func (s *Shop) Pay(ctx context.Context, id string) error {
	return s.publisher.RunInTx(ctx, s.db, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE orders SET status = 'paid' WHERE id = ?`, id); err != nil {
			return err
		}
		return s.publisher.Publish(ctx, tx, OrderPaid{id})
	})
}

// Close removes the shop with all that it has. Forward has returned before.
func (s *Shop) Close() error {
	var err error
	if s.db != nil {
		err = s.db.Close()
	}
	return errors.Join(err, os.RemoveAll(s.folder))
}
