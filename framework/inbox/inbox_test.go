package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/inbox"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/framework/waybilltest"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/function"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

type (
	orderPlaced struct{ Order string }
	paymentDue  struct{ Order string }
)

// shop is an application with its data, an outbox and an inbox in one database.
type shop struct {
	db        *sql.DB
	store     shopStore
	types     *registry.Registry
	publisher *outbox.Publisher
	box       *inbox.Inbox
}

type shopStore interface {
	forwarder.Store
	store.Inbox
	outbox.Log
}

// onEach runs a test on each database.
func onEach(t *testing.T, test func(t *testing.T, s *shop)) {
	t.Helper()
	t.Parallel()
	open := map[string]func(t *testing.T) (*sql.DB, shopStore){
		"postgres": func(t *testing.T) (*sql.DB, shopStore) {
			db, s := outboxtest.PostgreSQL(t, outboxtest.DSN(t), postgres.Config{})
			return db, s
		},
		"sqlite": func(t *testing.T) (*sql.DB, shopStore) {
			o := waybilltest.New(t, registry.New())
			return o.DB, o.Store
		},
	}
	for name, open := range open {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, s := open(t)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			_, err := db.Exec(`CREATE TABLE payments (paid_for VARCHAR(100))`)
			require.NoError(t, err)
			types := registry.New()
			require.NoError(t, registry.Register[orderPlaced](types, "order.placed"))
			require.NoError(t, registry.Register[paymentDue](types, "payment.due"))
			publisher, err := outbox.New(types, s, outbox.Config{})
			require.NoError(t, err)
			test(t, &shop{db, s, types, publisher, inbox.New(s)})
		})
	}
}

func (s *shop) count(t *testing.T, table string) (n int) {
	t.Helper()
	require.NoError(t, s.db.QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
	return n
}

// pay stores an effect.
func pay(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO payments VALUES ('o-1')`)
	return err
}

// Tables, and conditions for their rows.
const (
	paid    = `payments`
	handled = `outbox_inbox`
	due     = `outbox WHERE type = 'payment.due'`
)

// config is the configuration of the consumer of payments.
func (s *shop) config() inbox.Config {
	return inbox.Config{Inbox: s.box, DB: s.db, Publisher: s.publisher, Consumer: "payments"}
}

func TestOnceHasItsEffectOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		for _, want := range []bool{true, false, false} {
			first, err := s.box.Once(t.Context(), s.db, "payments", "n-1", pay)
			require.NoError(t, err)
			require.Equal(t, want, first)
		}
		require.Equal(t, 1, s.count(t, paid))
		first, err := s.box.Once(t.Context(), s.db, "mails", "n-1", func(context.Context, *sql.Tx) error { return nil })
		require.NoError(t, err)
		require.True(t, first, "another consumer has its own ids")
	})
}

func TestAFailureCountsAsNotHandled(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		wrong := errors.New("no money")
		first, err := s.box.Once(t.Context(), s.db, "payments", "n-1", func(ctx context.Context, tx *sql.Tx) error {
			return errors.Join(pay(ctx, tx), wrong)
		})
		require.ErrorIs(t, err, wrong)
		require.False(t, first)
		require.Panics(t, func() {
			_, _ = s.box.Once(t.Context(), s.db, "payments", "n-1", func(ctx context.Context, tx *sql.Tx) error {
				panic(pay(ctx, tx))
			})
		})
		require.Zero(t, s.count(t, paid))
		first, err = s.box.Once(t.Context(), s.db, "payments", "n-1", pay)
		require.NoError(t, err)
		require.True(t, first)
		require.Equal(t, 1, s.count(t, paid))
	})
}

func TestNamesThatCannotBeIndexedAreRefused(t *testing.T) {
	t.Parallel()
	box := inbox.New(nil)
	for name, pair := range map[string][2]string{
		"the consumer has 0 bytes": {"", "a"}, "the id has 0 bytes": {"a", ""}, "the id has 1001 bytes": {"a", strings.Repeat("a", 1001)},
	} {
		_, err := box.First(t.Context(), nil, pair[0], pair[1])
		require.ErrorIs(t, err, inbox.ErrName)
		require.ErrorContains(t, err, name)
	}
}

// delivery returns a delivery of an order, as a forwarder makes it.
func (s *shop) delivery(t *testing.T, id string) *notification.Delivery {
	t.Helper()
	e, err := s.types.Encode(orderPlaced{"o-1"})
	require.NoError(t, err)
	e.ID = id
	return &notification.Delivery{Envelope: e, Sink: "payments", Attempt: 1}
}

// handler pays and publishes the result.
func (s *shop) handler(calls *atomic.Int32) sinks.Sink {
	return inbox.HandleTx(inbox.Config{Inbox: s.box, DB: s.db, Publisher: s.publisher}, s.types, func(ctx context.Context, tx *sql.Tx, o orderPlaced) error {
		calls.Add(1)
		if err := pay(ctx, tx); err != nil {
			return err
		}
		return s.publisher.Publish(ctx, tx, paymentDue(o))
	})
}

func TestARepeatedDeliveryHasNoEffect(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		var calls atomic.Int32
		sink := s.handler(&calls)
		require.NoError(t, sink.(sinks.Opener).Open(t.Context()))
		for _, want := range []notification.Receipt{"", "handled before", "handled before"} {
			receipt, err := sink.Deliver(t.Context(), s.delivery(t, "n-1"))
			require.NoError(t, err)
			require.Equal(t, want, receipt)
		}
		require.EqualValues(t, 1, calls.Load())
		require.Equal(t, 1, s.count(t, paid))
		require.Equal(t, 1, s.count(t, due))
	})
}

func TestAHandlersErrorKeepsItsClassAndRollsBack(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		refuse := true
		sink := inbox.HandleTx(inbox.Config{Inbox: s.box, DB: s.db}, s.types, func(ctx context.Context, tx *sql.Tx, _ orderPlaced) error {
			if err := pay(ctx, tx); err != nil || !refuse {
				return err
			}
			return sinks.Permanent(errors.New("no such customer"))
		})
		_, err := sink.Deliver(t.Context(), s.delivery(t, "n-1"))
		class, _ := sinks.Classify(err)
		require.Equal(t, sinks.ClassPermanent, class)
		require.Zero(t, s.count(t, paid))
		refuse = false
		_, err = sink.Deliver(t.Context(), s.delivery(t, "n-1"))
		require.NoError(t, err, "a requeue")
		require.Equal(t, 1, s.count(t, paid))
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = sink.Deliver(cancelled, s.delivery(t, "n-2"))
		require.Equal(t, context.Canceled, err)
	})
}

func TestMistakesAreReportedWhenAForwarderIsCreated(t *testing.T) {
	t.Parallel()
	types := registry.New()
	require.NoError(t, registry.Register[orderPlaced](types, "order.placed"))
	for want, sink := range map[error]sinks.Sink{
		inbox.ErrConfig:        inbox.HandleTx(inbox.Config{}, types, func(context.Context, *sql.Tx, orderPlaced) error { return nil }),
		function.ErrNoHandlers: inbox.HandleTx[orderPlaced, *sql.Tx](inbox.Config{}, types, nil),
	} {
		_, err := forwarder.New(forwarder.Config{
			Store: struct{ forwarder.Store }{}, Types: types, Routes: route.Routes{"order.placed": route.To("payments")},
			Sinks: map[string]forwarder.Sink{"payments": {Sink: sink}},
		})
		require.ErrorIs(t, err, want)
	}
	sink := function.Mux(types, inbox.OnTx(func(context.Context, *sql.Tx, orderPlaced) error { return nil }))
	e, err := types.Encode(orderPlaced{})
	require.NoError(t, err)
	_, err = sink.Deliver(t.Context(), &notification.Delivery{Envelope: e})
	require.ErrorIs(t, err, inbox.ErrNoTransaction)
}

// TestAChainOfHandlersHasEachEffectOnce runs order, payment and mail through a forwarder that makes the
// first delivery of each notification twice.
func TestAChainOfHandlersHasEachEffectOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *shop) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		const orders = 50
		var paidCalls, mails atomic.Int32
		var causes [2]atomic.Int32
		mail := inbox.HandleTx(inbox.Config{Inbox: s.box, DB: s.db}, s.types, func(ctx context.Context, _ *sql.Tx, p paymentDue) error {
			cause := notification.Cause(ctx)
			if cause.Metadata.Get(notification.MetadataCorrelationID) == "order "+p.Order {
				causes[0].Add(1)
			}
			if cause.Metadata.Get(notification.MetadataCausationID) == p.Order {
				causes[1].Add(1)
			}
			if mails.Add(1) == orders {
				defer stop()
			}
			return nil
		})
		payments := inbox.HandleTx(inbox.Config{Inbox: s.box, DB: s.db, Publisher: s.publisher}, s.types, func(ctx context.Context, tx *sql.Tx, o orderPlaced) error {
			paidCalls.Add(1)
			return errors.Join(pay(ctx, tx), s.publisher.Publish(ctx, tx, paymentDue(o)))
		})
		again := sinks.Func(func(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
			if receipt, err := payments.Deliver(ctx, d); err != nil || d.Attempt > 1 {
				return receipt, err
			}
			return "", errors.New("the answer was lost") // after the commit
		})
		f, err := forwarder.New(forwarder.Config{
			Store: s.store, Types: s.types,
			Routes: route.Routes{"order.placed": route.To("payments"), "payment.due": route.To("mails")},
			Sinks: map[string]forwarder.Sink{
				"payments": {Sink: again, Retry: forwarder.Retry{Initial: time.Millisecond, Max: time.Millisecond}, Breaker: forwarder.Breaker{Off: true}},
				"mails":    {Sink: mail, Parallelism: forwarder.Parallelism{Threshold: 1}},
			},
		})
		require.NoError(t, err)
		require.NoError(t, s.publisher.RunInTx(ctx, s.db, nil, func(ctx context.Context, tx *sql.Tx) error {
			for i := range orders {
				id := fmt.Sprintf("o-%02d", i)
				err := s.publisher.Publish(ctx, tx, outbox.With(orderPlaced{id}, outbox.ID(id), outbox.CorrelationID("order "+id)))
				if err != nil {
					return err
				}
			}
			return nil
		}))
		require.NoError(t, f.Run(ctx))
		require.EqualValues(t, orders, mails.Load())
		require.EqualValues(t, orders, paidCalls.Load())
		require.Equal(t, orders, s.count(t, paid))
		require.Equal(t, orders, s.count(t, due))
		require.EqualValues(t, orders, causes[0].Load(), "correlation")
		require.EqualValues(t, orders, causes[1].Load(), "causation")
	})
}

func TestADeliveryThatCannotBeNotedIsUnavailable(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, s *shop, d *notification.Delivery) (context.Context, error){
		"without a database": func(t *testing.T, s *shop, _ *notification.Delivery) (context.Context, error) {
			return t.Context(), s.db.Close()
		},
		"without a connection": func(t *testing.T, s *shop, _ *notification.Delivery) (context.Context, error) {
			s.db.SetMaxOpenConns(1)
			tx, err := s.db.Begin()
			t.Cleanup(func() { _ = tx.Rollback() })
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			t.Cleanup(cancel)
			return ctx, err
		},
		"without an inbox": func(t *testing.T, s *shop, _ *notification.Delivery) (context.Context, error) {
			_, err := s.db.Exec(`DROP TABLE outbox_inbox`)
			return t.Context(), err
		},
		"without a consumer": func(t *testing.T, _ *shop, d *notification.Delivery) (context.Context, error) {
			d.Sink = "" // as in a consumer without a forwarder
			return t.Context(), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, s *shop) {
				var calls atomic.Int32
				d := s.delivery(t, "n-1")
				ctx, err := spoil(t, s, d)
				require.NoError(t, err)
				_, err = s.handler(&calls).Deliver(ctx, d)
				class, _ := sinks.Classify(err)
				require.Equal(t, sinks.ClassUnavailable, class, "%v", err)
				require.Equal(t, name == "without a consumer", errors.Is(err, inbox.ErrConfig))
				require.Zero(t, calls.Load())
			})
		})
	}
}
