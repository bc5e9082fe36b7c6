package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
)

// Config says where handlers write their effects. Inbox, and either DB or Pgx, are required.
type Config struct {
	Inbox *Inbox
	// DB is where handlers write; it has the inbox's tables. Handlers get a *sql.Tx.
	DB *sql.DB
	// Pgx is set in place of DB for handlers that get a pgx transaction: Pgx(pool, pgx.TxOptions{}).
	Pgx Transactions
	// Publisher, if set, announces what handlers publish in their transaction, so that it is
	// delivered at once.
	Publisher *outbox.Publisher
	// Consumer is the name under which ids are stored; default: the sink's name. Set it if a
	// sink replaces one with another name. Middleware and Handler require it.
	Consumer string
}

func (c Config) check() error {
	if c.Inbox == nil || c.transactions().run == nil {
		return ErrConfig
	}
	if c.DB != nil && c.Pgx.run != nil {
		return fmt.Errorf("%w: DB and Pgx are both set; keep one", ErrConfig)
	}
	return nil
}

// checkConsumer also requires Consumer, for callers without a sink's name as default.
func (c Config) checkConsumer() error {
	if c.Consumer == "" {
		return ErrConfig
	}
	return c.check()
}

// once runs f in a transaction that stores the id, unless the consumer has already handled it.
// In f, [Tx] returns the transaction. began reports whether f was called.
func (c Config) once(ctx context.Context, consumer, id string, f func(ctx context.Context) error) (began bool, err error) {
	err = c.transactions().run(ctx, c.Publisher, func(ctx context.Context, tx any, inboxTx outbox.Tx) error {
		first, err := c.Inbox.First(ctx, inboxTx, consumer, id)
		if err != nil || !first {
			return err
		}
		began = true
		return f(context.WithValue(ctx, txKey{}, tx))
	})
	return began, err
}

// txKey is the context key of the transaction.
type txKey struct{}

// Tx returns the transaction in which the inbox stores the id that is being handled: a *sql.Tx,
// or a pgx.Tx if Config.Pgx is set. It returns the zero value outside of a handler, and if the
// transaction has another type. The handler must neither end nor keep it.
func Tx[T any](ctx context.Context) T {
	tx, _ := ctx.Value(txKey{}).(T)
	return tx
}

// HandleTx returns a sink whose function has its effects once for each notification of type
// T, even if a delivery is repeated: everything that the function writes and publishes in tx
// commits together with the id. See [Mux].
func HandleTx[T, Tx any](c Config, types *registry.Registry, handle func(ctx context.Context, tx Tx, n T) error) sinks.Sink {
	return Mux(c, types, OnTx(handle))
}

// OnTx returns a handler of type T that works in a transaction, for a sink made by [Mux]. Tx is
// a *sql.Tx if the Config has DB, a pgx.Tx if it has Pgx. The function must not end tx, nor use
// it after it has returned. Its error rolls everything back; its class is set with
// [sinks.Permanent] and its siblings. On SQLite the function must return each error of tx:
// some of these errors have already rolled the transaction back, and a later statement would
// be committed by itself.
func OnTx[T, Tx any](handle func(ctx context.Context, tx Tx, n T) error) function.Handler {
	if handle == nil {
		return function.On[T]() // forwarder.New refuses it
	}
	return function.On(func(ctx context.Context, n T) error {
		switch tx := ctx.Value(txKey{}).(type) {
		case Tx:
			return handle(ctx, tx, n)
		case nil:
			return sinks.Unavailable(fmt.Errorf("%w: use inbox.Mux in place of function.Mux", ErrNoTransaction))
		default:
			return sinks.Unavailable(fmt.Errorf("%w: the handler takes a %s, and the sink begins a %T: set Config.DB for *sql.Tx, Config.Pgx for pgx.Tx",
				ErrNoTransaction, reflect.TypeFor[Tx](), tx))
		}
	})
}

// Mux returns a sink that calls the handlers of each notification's type, as [function.Mux]
// does, all in one transaction of Config.DB or Config.Pgx, in which it stores the id. A repeated
// delivery, also after a crash, a requeue or a replay, succeeds with the receipt
// "handled before" and calls no handler. To handle a notification again, delete its id from
// the inbox.
//
// A delivery in flight holds a connection of the pool, so the pool needs as many as the sink's
// parallelism threshold, plus those of the forwarder if they share it. If no transaction can
// begin or no id can be stored, the sink is unavailable. Errors of handlers keep their class.
//
// On SQLite a delivery holds the database's write lock until its handlers have returned, so
// handlers should not wait for anything else, and a threshold above 1 gains nothing.
func Mux(c Config, types *registry.Registry, handlers ...function.Handler) sinks.Sink {
	return &mux{c, function.Mux(types, handlers...)}
}

type mux struct {
	config   Config
	handlers sinks.Sink
}

var (
	_ sinks.Opener = (*mux)(nil)
	_ sinks.Typed  = (*mux)(nil)
	_ sinks.Noter  = (*mux)(nil)
)

// handled is the receipt of a repeated delivery.
const handled notification.Receipt = "handled before"

// RevealsPrivate implements sinks.Revealer.
func (*mux) RevealsPrivate() bool { return true }

// Deliver calls the handlers in a transaction, unless the id was already handled.
func (m *mux) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	consumer := m.config.Consumer
	if consumer == "" {
		consumer = d.Sink
	}
	if consumer == "" {
		return "", sinks.Unavailable(fmt.Errorf("%w: the delivery has no sink name, so Config.Consumer must name the consumer", ErrConfig))
	}
	began, err := m.config.once(ctx, consumer, d.ID, func(ctx context.Context) error {
		_, err := m.handlers.Deliver(ctx, d)
		return err
	})
	switch {
	case err == nil && !began:
		return handled, nil
	case err == nil:
		return "", nil
	case began, errors.Is(err, store.ErrCollision):
		return "", err
	case errors.Is(err, ErrName):
		return "", sinks.Permanent(err)
	case errors.Is(ctx.Err(), context.Canceled):
		return "", ctx.Err()
	}
	// No connection, no table, no right to it, or a timeout while another transaction held the
	// id: the delivery is not the cause.
	return "", sinks.Unavailable(err)
}

// Open reports mistakes in the configuration and the handlers.
func (m *mux) Open(ctx context.Context) error {
	return errors.Join(m.config.check(), m.handlers.(sinks.Opener).Open(ctx))
}

// NotesIDs returns true: the sink uses the inbox.
func (m *mux) NotesIDs() bool { return true }

// HandledTypes lists the types that have a handler.
func (m *mux) HandledTypes() ([]sinks.HandledType, error) {
	handled, err := m.handlers.(sinks.Typed).HandledTypes()
	return handled, errors.Join(m.config.check(), err)
}
