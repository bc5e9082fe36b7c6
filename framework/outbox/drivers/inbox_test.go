package drivers

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/inbox"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// The handler of an order publishes PaymentDue.
type PaymentDue struct{ Order string }

// inboxShop has a table of payments beside the orders. Handlers write payments.
type inboxShop struct {
	*shop
	pool  *pgxpool.Pool
	store *postgres.Store
	box   *inbox.Inbox
}

func newInboxShop(t *testing.T) *inboxShop {
	pool, db := newPool(t)
	s := &inboxShop{shop: onPostgres(t, db), pool: pool}
	require.NoError(t, registry.Register[PaymentDue](s.types, "payment.due"))
	_, err := pool.Exec(t.Context(), `CREATE TABLE payments (order_id text)`)
	require.NoError(t, err)
	s.store = s.log.(*postgres.Store)
	s.box = inbox.New(s.store)
	return s
}

func (s *inboxShop) config() inbox.Config {
	return inbox.Config{Inbox: s.box, Pgx: inbox.Pgx(s.pool, pgx.TxOptions{}), Publisher: s.publisher}
}

func pay(ctx context.Context, tx pgx.Tx, order string) error {
	_, err := tx.Exec(ctx, `INSERT INTO payments VALUES ($1)`, order)
	return err
}

// payments returns a handler that writes a payment and publishes PaymentDue.
func (s *inboxShop) payments() sinks.Sink {
	return inbox.HandleTx(s.config(), s.types, func(ctx context.Context, tx pgx.Tx, o OrderPlaced) error {
		return errors.Join(pay(ctx, tx, o.Order), s.publisher.Publish(ctx, outbox.Pgx(tx), PaymentDue{o.Order}))
	})
}

func (s *inboxShop) delivery(t *testing.T, id string) *notification.Delivery {
	t.Helper()
	e, err := s.types.Encode(OrderPlaced{Order: id})
	require.NoError(t, err)
	e.ID = id
	return &notification.Delivery{Envelope: e, Sink: "payments", Attempt: 1}
}

func TestAHandlersErrorInPgxKeepsItsClassAndRollsBack(t *testing.T) {
	t.Parallel()
	s := newInboxShop(t)
	refuse := true
	sink := inbox.HandleTx(s.config(), s.types, func(ctx context.Context, tx pgx.Tx, o OrderPlaced) error {
		if err := pay(ctx, tx, o.Order); err != nil || !refuse {
			return err
		}
		return sinks.Permanent(errNoStock)
	})
	_, err := sink.Deliver(t.Context(), s.delivery(t, "o-1"))
	class, _ := sinks.Classify(err)
	require.Equal(t, sinks.ClassPermanent, class)
	require.Empty(t, s.column(t, `SELECT order_id FROM payments`))
	refuse = false
	_, err = sink.Deliver(t.Context(), s.delivery(t, "o-1"))
	require.NoError(t, err)
	require.Equal(t, []string{"o-1"}, s.column(t, `SELECT order_id FROM payments`))
}

func TestAHandlerOfAnotherTransactionTypeIsRefusedWithAHint(t *testing.T) {
	t.Parallel()
	s := newInboxShop(t)
	sink := inbox.HandleTx(s.config(), s.types, func(context.Context, *sql.Tx, OrderPlaced) error { return nil })
	_, err := sink.Deliver(t.Context(), s.delivery(t, "o-1"))
	require.ErrorIs(t, err, inbox.ErrNoTransaction)
	require.ErrorContains(t, err, "the handler takes a *sql.Tx, and the sink begins a *pgxpool.Tx: set Config.DB for *sql.Tx")
	both := s.config()
	both.DB = s.db
	require.ErrorContains(t, inbox.Mux(both, s.types).(sinks.Opener).Open(t.Context()), "DB and Pgx are both set")
}

func TestOnceInPgx(t *testing.T) {
	t.Parallel()
	s := newInboxShop(t)
	once := func(result error) (bool, error) {
		return inbox.OnceInPgx(t.Context(), s.box, s.pool, pgx.TxOptions{}, "invoices", "n-1", func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(pay(ctx, tx, "o-1"), result)
		})
	}
	first, err := once(errNoStock)
	require.ErrorIs(t, err, errNoStock)
	require.False(t, first)
	for _, want := range []bool{true, false, false} {
		first, err := once(nil)
		require.NoError(t, err)
		require.Equal(t, want, first)
	}
	require.Equal(t, []string{"o-1"}, s.column(t, `SELECT order_id FROM payments`))

	require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		first, err := s.box.First(t.Context(), outbox.Pgx(tx), "invoices", "n-1")
		require.False(t, first)
		return err
	}))
}

// A program with only pgx publishes, forwards and handles with one pool. Each first delivery has its
// effect but fails, and is repeated.
func TestAProgramForwardsOverAPgxPool(t *testing.T) {
	t.Parallel()
	s := newInboxShop(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	const orders = 20
	payments := s.payments()
	again := sinks.Func(func(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
		if receipt, err := payments.Deliver(ctx, d); err != nil || d.Attempt > 1 {
			return receipt, err
		}
		return "", errors.New("the answer was lost") // after the commit
	})
	mailed := 0
	mails := inbox.HandleTx(s.config(), s.types, func(context.Context, pgx.Tx, PaymentDue) error {
		if mailed++; mailed == orders {
			defer stop()
		}
		return nil
	})
	f, err := forwarder.New(forwarder.Config{
		Store: s.store, Types: s.types, Logger: slog.New(slog.DiscardHandler),
		Routes: route.Routes{"order.placed": route.To("payments"), "payment.due": route.To("mails")},
		Sinks: map[string]forwarder.Sink{
			"payments": {Sink: again, Retry: forwarder.Retry{Initial: time.Millisecond, Max: time.Millisecond}, Breaker: forwarder.Breaker{Off: true}},
			"mails":    {Sink: mails, Parallelism: forwarder.Parallelism{Threshold: 1}},
		},
	})
	require.NoError(t, err)
	want := make([]string, orders)
	require.NoError(t, outbox.RunInPgx(ctx, s.publisher, s.pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		for i := range want {
			want[i] = string(rune('a' + i))
			if err := s.publisher.Publish(ctx, outbox.Pgx(tx), OrderPlaced{Order: want[i]}); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, f.Run(ctx))
	require.Equal(t, orders, mailed)
	require.ElementsMatch(t, want, s.column(t, `SELECT order_id FROM payments`))
}

// Each connection for LISTEN asks the function for the address, since a token may expire. The other
// connections are the pool's.
func TestACommitInPgxIsAnnouncedToAListenerWithAnAddressFunction(t *testing.T) {
	t.Parallel()
	s := newInboxShop(t)
	tokens := []string{"left-last-year", s.pool.Config().ConnConfig.User}
	log, err := postgres.Open(t.Context(), s.db, postgres.Config{ListenDSN: func(context.Context) (string, error) {
		address, err := url.Parse(s.pool.Config().ConnString())
		if err != nil {
			return "", err
		}
		address.User, tokens = url.UserPassword(tokens[0], s.pool.Config().ConnConfig.Password), tokens[1:]
		return address.String(), nil
	}})
	require.NoError(t, err)
	require.ErrorContains(t, log.Listen(t.Context(), func(store.News) {}), "listen: ")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	heard, ended := make(chan store.News, 10), make(chan error, 1)
	go func() { ended <- log.Listen(ctx, func(news store.News) { heard <- news }) }()
	require.Equal(t, store.NewsUnknown, <-heard, "the forwarder listens")
	announcing, err := outbox.New(s.types, log, outbox.Config{})
	require.NoError(t, err)
	require.NoError(t, outbox.RunInPgx(ctx, announcing, s.pool, pgx.TxOptions{}, func(ctx context.Context, tx pgx.Tx) error {
		return announcing.Publish(ctx, outbox.Pgx(tx), OrderPlaced{Order: "o"})
	}))
	require.Equal(t, store.NewsRows, <-heard)
	stop()
	require.NoError(t, <-ended)
}
