package drivers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/inbox"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/sinks"
)

func TestAForwarderWithAPgxPoolSurvivesTheLossOfItsConnections(t *testing.T) {
	t.Parallel()
	s := newInboxShop(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	delivered := make(chan string, 10)
	f, err := forwarder.New(forwarder.Config{
		Store: s.store, Types: s.types, Logger: slog.New(slog.DiscardHandler), Routes: route.Routes{"order.placed": route.To("print")},
		Sinks: map[string]forwarder.Sink{"print": {Sink: sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
			delivered <- d.Key
			return "", nil
		})}},
	})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	admin, err := postgres.OpenDB(s.pool.Config().ConnString()) // a separate connection
	require.NoError(t, err)
	defer admin.Close()
	publisher, err := outbox.New(s.types, s.store, outbox.Config{})
	require.NoError(t, err)
	for i := range 5 {
		key := fmt.Sprint("o-", i)
		require.NoError(t, publisher.RunInTx(ctx, admin, nil, func(ctx context.Context, tx *sql.Tx) error {
			return publisher.Publish(ctx, tx, OrderPlaced{Order: key})
		}))
		select {
		case got := <-delivered:
			require.Equal(t, key, got, "the sink is called once, since the forwarder remembers deliveries")
		case <-ctx.Done():
			t.Fatal("not delivered")
		}
		_, err := admin.ExecContext(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		require.NoError(t, err)
	}
	stop()
	require.NoError(t, <-ended)
	require.Empty(t, delivered)
}

// Of several simultaneous deliveries of one id, one has the effects. At isolation levels that do not wait
// for it, the others collide and are repeated.
func TestSimultaneousDeliveriesHaveTheirEffectsOnceInPgx(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			s := newInboxShop(t)
			config := s.config()
			config.Pgx = inbox.Pgx(s.pool, pgx.TxOptions{IsoLevel: level})
			sink := inbox.HandleTx(config, s.types, func(ctx context.Context, tx pgx.Tx, o OrderPlaced) error { return pay(ctx, tx, o.Order) })
			d := s.delivery(t, "o-1")
			var delivering sync.WaitGroup
			for range 8 {
				delivering.Go(func() {
					for {
						_, err := sink.Deliver(t.Context(), d)
						if err == nil {
							return
						}
						if !errors.Is(err, store.ErrCollision) {
							t.Error(err)
							return
						}
					}
				})
			}
			delivering.Wait()
			require.Equal(t, []string{"o-1"}, s.column(t, `SELECT order_id FROM payments`))
		})
	}
}
