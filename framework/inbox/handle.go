package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
)

// Errors of sinks with handlers.
var (
	// ErrConfig: Inbox or DB is missing, which is found when a forwarder is made with the
	// sink; or a delivery that no forwarder made, and Config, name no consumer.
	ErrConfig = errors.New("an inbox, a database and a consumer are needed")
	// ErrNoTransaction: a handler of OnTx is in a sink that Mux did not make.
	ErrNoTransaction = errors.New("no transaction for the handler: use inbox.Mux in place of function.Mux")
)

// Config is where handlers have their effects. Inbox and DB are required.
type Config struct {
	Inbox *Inbox
	// DB is where the effects happen; the inbox's tables are there.
	DB *sql.DB
	// Publisher, if set, announces what handlers published in their transaction, so
	// that it is delivered at once.
	Publisher *outbox.Publisher
	// Consumer is the name under which ids are noted; default: that of the sink. Set it
	// where a sink takes over from one with another name.
	Consumer string
}

// HandleTx returns a sink whose function has its effects once for each notification of
// type T, however often the delivery is made: what it writes and publishes in tx, and the
// note that it did, are committed together. See [Mux].
func HandleTx[T any](c Config, types *registry.Registry, handle func(ctx context.Context, tx *sql.Tx, n T) error) sinks.Sink {
	return Mux(c, types, OnTx(handle))
}

// OnTx handles type T in a transaction, in a sink of [Mux]. The function must not commit
// or roll back tx, nor use it after it returned. Its error rolls everything back, and has
// the class that it gives with [sinks.Permanent] and its neighbours. On SQLite it must return
// each error of tx: some of them have rolled the transaction back already, and what it goes
// on to write would be committed by itself.
func OnTx[T any](handle func(ctx context.Context, tx *sql.Tx, n T) error) function.Handler {
	if handle == nil {
		return function.On[T]() // which is refused when a forwarder is made
	}
	return function.On(func(ctx context.Context, n T) error {
		tx, ok := ctx.Value(txKey{}).(*sql.Tx)
		if !ok {
			return sinks.Unavailable(ErrNoTransaction)
		}
		return handle(ctx, tx, n)
	})
}

// txKey is the context key of the transaction.
type txKey struct{}

// Mux returns a sink that hands each notification to the handlers of its type, as
// [function.Mux] does, all in one transaction of Config.DB in which its id is noted. A
// delivery that was handled before is taken, with the receipt "handled before", and no
// handler is called: after a crash, and after a requeue or a replay too. To have one handled
// again, delete its id from the inbox.
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
func (m *mux) Deliver(ctx context.Context, d *notification.Delivery) (receipt notification.Receipt, err error) {
	consumer := m.config.Consumer
	if consumer == "" {
		consumer = d.Sink
	}
	if consumer == "" {
		return "", sinks.Unavailable(fmt.Errorf("%w: the delivery has no sink, so Config.Consumer must name the consumer", ErrConfig))
	}
	began := false // the handlers
	err = m.inTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		switch first, err := m.config.Inbox.First(ctx, tx, consumer, d.ID); {
		case err != nil:
			return err
		case !first:
			receipt = handled
			return nil
		}
		began = true
		_, err := m.handlers.Deliver(context.WithValue(ctx, txKey{}, tx), d)
		return err
	})
	switch {
	case err == nil:
		return receipt, nil
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

func (m *mux) inTx(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error {
	if m.config.Publisher != nil {
		return m.config.Publisher.RunInTx(ctx, m.config.DB, nil, f)
	}
	return outbox.InTx(ctx, m.config.DB, nil, f)
}

func (m *mux) check() error {
	if m.config.Inbox == nil || m.config.DB == nil {
		return ErrConfig
	}
	return nil
}

// Open reports what is wrong with configuration and handlers.
func (m *mux) Open(ctx context.Context) error {
	return errors.Join(m.check(), m.handlers.(sinks.Opener).Open(ctx))
}

// NotesIDs is true.
func (m *mux) NotesIDs() bool { return true }

// HandledTypes lists the types that have a handler.
func (m *mux) HandledTypes() ([]sinks.HandledType, error) {
	handled, err := m.handlers.(sinks.Typed).HandledTypes()
	return handled, errors.Join(m.check(), err)
}
