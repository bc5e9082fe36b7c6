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

// Config is where handlers have their effects. Inbox, and DB or Pgx, are required.
type Config struct {
	Inbox *Inbox
	// DB is where the effects happen; the inbox's tables are there. Handlers get a *sql.Tx.
	DB *sql.DB
	// Pgx is set in place of DB where handlers get a transaction of pgx: Pgx(pool, pgx.TxOptions{}).
	Pgx Transactions
	// Publisher, if set, announces what handlers published in their transaction, so
	// that it is delivered at once.
	Publisher *outbox.Publisher
	// Consumer is the name under which ids are noted; default: that of the sink. Set it
	// where a sink takes over from one with another name. Middleware and Handler require it.
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

// checkConsumer is check for what has no sink to be named after.
func (c Config) checkConsumer() error {
	if c.Consumer == "" {
		return ErrConfig
	}
	return c.check()
}

// once runs f in a transaction that notes the id, unless the consumer has handled it: f
// finds the transaction by [Tx]. began reports whether f ran.
func (c Config) once(ctx context.Context, consumer, id string, f func(ctx context.Context) error) (began bool, err error) {
	err = c.transactions().run(ctx, c.Publisher, func(ctx context.Context, tx any, noted outbox.Tx) error {
		first, err := c.Inbox.First(ctx, noted, consumer, id)
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

// Tx is the transaction in which the inbox notes the id of what is being handled: a *sql.Tx,
// or a pgx.Tx where Config.Pgx is set; the zero value in a context of anything else, or for
// another type. What handles it must neither end it nor keep it.
func Tx[T any](ctx context.Context) T {
	tx, _ := ctx.Value(txKey{}).(T)
	return tx
}

// HandleTx returns a sink whose function has its effects once for each notification of
// type T, however often the delivery is made: what it writes and publishes in tx, and the
// note that it did, are committed together. See [Mux].
func HandleTx[T, Tx any](c Config, types *registry.Registry, handle func(ctx context.Context, tx Tx, n T) error) sinks.Sink {
	return Mux(c, types, OnTx(handle))
}

// OnTx handles type T in a transaction, in a sink of [Mux]: a *sql.Tx if that has a DB, a
// pgx.Tx if it has Pgx. The function must not commit or roll back tx, nor use it after it
// returned. Its error rolls everything back, and has the class that it gives with
// [sinks.Permanent] and its neighbours. On SQLite it must return each error of tx: some of
// them have rolled the transaction back already, and what it goes on to write would be
// committed by itself.
func OnTx[T, Tx any](handle func(ctx context.Context, tx Tx, n T) error) function.Handler {
	if handle == nil {
		return function.On[T]() // which is refused when a forwarder is made
	}
	return function.On(func(ctx context.Context, n T) error {
		switch tx := ctx.Value(txKey{}).(type) {
		case Tx:
			return handle(ctx, tx, n)
		case nil:
			return sinks.Unavailable(fmt.Errorf("%w: use inbox.Mux in place of function.Mux", ErrNoTransaction))
		default:
			return sinks.Unavailable(fmt.Errorf("%w: it takes a %s, and the sink begins a %T: set Config.DB for *sql.Tx, Config.Pgx for pgx.Tx",
				ErrNoTransaction, reflect.TypeFor[Tx](), tx))
		}
	})
}

// Mux returns a sink that hands each notification to the handlers of its type, as
// [function.Mux] does, all in one transaction of Config.DB, or Config.Pgx, in which its id
// is noted. A delivery that was handled before is taken, with the receipt "handled before",
// and no handler is called: after a crash, and after a requeue or a replay too. To have one
// handled again, delete its id from the inbox.
//
// A delivery in hand keeps a connection of the pool, so the pool needs as many as the
// sink's parallelism threshold, and those of the forwarder where they share it. Where no
// transaction can be begun, or no id noted, the sink is unavailable; what handlers return
// has the class that they give it.
//
// On SQLite a delivery holds the database's write lock until its handlers have returned, so
// they should not wait for anything else, and a threshold above 1 gains nothing.
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

// handled is the receipt of a delivery that was handled before.
const handled notification.Receipt = "handled before"

// Deliver calls the handlers in a transaction, unless the delivery was handled before.
func (m *mux) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	consumer := m.config.Consumer
	if consumer == "" {
		consumer = d.Sink
	}
	if consumer == "" {
		return "", sinks.Unavailable(fmt.Errorf("%w: the delivery has no sink, so Config.Consumer must name the consumer", ErrConfig))
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
	// No connection, no table or no right to it: that is no delivery's fault. Nor is it if
	// the time went by while another transaction held the id.
	return "", sinks.Unavailable(err)
}

// Open reports what is wrong with configuration and handlers.
func (m *mux) Open(ctx context.Context) error {
	return errors.Join(m.config.check(), m.handlers.(sinks.Opener).Open(ctx))
}

// NotesIDs is true.
func (m *mux) NotesIDs() bool { return true }

// HandledTypes lists the types that have a handler.
func (m *mux) HandledTypes() ([]sinks.HandledType, error) {
	handled, err := m.handlers.(sinks.Typed).HandledTypes()
	return handled, errors.Join(m.config.check(), err)
}
