// Package testing runs the blocks of docs/testing.md.
package testing

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/framework/waybilltest"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
)

type (
	OrderPlaced struct{ Order string }
	OrderPaid   struct {
		Order string
		Cents int
	}
	ReminderDue struct{ Order string }
)

var types = func() *registry.Registry {
	types := registry.New()
	if err := errors.Join(registry.Register[OrderPlaced](types, "order.placed"), registry.Register[OrderPaid](types, "order.paid")); err != nil {
		panic(err)
	}
	return types
}()

func createTables(t *testing.T, db *sql.DB) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `CREATE TABLE orders (id text PRIMARY KEY CHECK (id <> ''))`)
	require.NoError(t, err)
}

// PlaceOrder is the code under test.
func PlaceOrder(ctx context.Context, db *sql.DB, publisher *outbox.Publisher, order string) error {
	return publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		if err := publisher.Publish(ctx, tx, OrderPlaced{Order: order}); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES ($1)`, order)
		return err
	})
}

var errNoSuchOrder = errors.New("no such order")

func reserveStock(context.Context, OrderPlaced) error { return sinks.Permanent(errNoSuchOrder) }

func TestAnOrderIsAnnounced(t *testing.T) {
	o := waybilltest.New(t, types) // an empty outbox; o.DB is the database, o.Publisher publishes there
	createTables(t, o.DB)

	require.NoError(t, PlaceOrder(t.Context(), o.DB, o.Publisher, "o-17"))

	o.RequirePublished(OrderPlaced{Order: "o-17"}) // exactly this, in this order
	o.Forget()                                     // count from here
	require.Error(t, PlaceOrder(t.Context(), o.DB, o.Publisher, ""))
	o.RequireNothing()
}

func TestAnOrderIsChargedAndTheCustomerReminded(t *testing.T) {
	db, err := sqlite.OpenDB(filepath.Join(t.TempDir(), "shop.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[OrderPlaced](o, "order.placed")
	waybill.Register[ReminderDue](o, "reminder.due")

	var charges, reminders int
	waybill.HandleTx(o, "shop", func(ctx context.Context, tx *sql.Tx, n OrderPlaced) error {
		if charges++; charges == 1 {
			return errors.New("the bank is closed") // tried again after retry.initial
		}
		return o.Publish(ctx, tx, waybill.With(ReminderDue(n), waybill.DeliverAt(time.Now().Add(24*time.Hour))))
	})
	waybill.HandleTx(o, "shop", func(context.Context, *sql.Tx, ReminderDue) error { reminders++; return nil })
	require.NoError(t, o.Migrate(t.Context()))
	require.NoError(t, o.Open(t.Context()))
	c, err := o.Forwarding() // the forwarder.Config of the application
	require.NoError(t, err)
	published := waybilltest.Of(t, c.Store, o.Types())

	require.NoError(t, o.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
		return o.Publish(ctx, tx, OrderPlaced{Order: "o-17"})
	}))
	waybilltest.Drain(t, c)
	require.Equal(t, 1, charges) // it waits for its retry
	waybilltest.Advance(t, c, time.Hour)
	require.Equal(t, 2, charges)
	published.RequirePublished(OrderPlaced{"o-17"}, ReminderDue{"o-17"})
	waybilltest.Advance(t, c, 24*time.Hour)
	require.Equal(t, 1, reminders)
}

func TestWhatAHandlerReturnsHasAClass(t *testing.T) {
	_, err := waybilltest.Deliver(t, types, function.Handle(types, reserveStock), OrderPlaced{Order: "o-17"})
	class, _ := sinks.Classify(err) // sinks.ClassPermanent: it would be dead at once
	require.Error(t, err)
	require.Equal(t, sinks.ClassPermanent, class)
}

func TestEveryVersionStillDecodes(t *testing.T) {
	waybilltest.Golden(t, types, "testdata/golden", OrderPlaced{Order: "o-17"}, OrderPaid{Order: "o-17", Cents: 700})
}

func TestMain(m *testing.M) { postgrestest.Main(m) } // ends the server before the process

func TestOnPostgreSQL(t *testing.T) {
	t.Parallel()
	db, err := postgres.OpenDB(postgrestest.DSN(t)) // or postgrestest.New(t), already open
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	o := waybill.Postgres(db, waybill.PostgresConfig{})
	require.NoError(t, o.Migrate(t.Context()))
}
