package forwarder_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/sinks"
)

func TestAForwarderOfSeveralLanesDeliversARequeuedDeliverySoon(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, err := postgres.OpenDB(postgrestest.DSN(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = postgres.Migrate(ctx, db, postgres.Config{})
	require.NoError(t, err)
	s, err := postgres.Open(ctx, db, postgres.Config{})
	require.NoError(t, err)
	var mended atomic.Bool
	delivered := make(chan string, 10)
	sink := sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
		if !mended.Load() {
			return "", sinks.Permanent(errors.New("400"))
		}
		delivered <- d.ID
		return "", nil
	})
	f, err := forwarder.New(forwarder.Config{
		Store: s, Lease: 15 * time.Second, Lanes: 2, Retention: forwarder.KeepForever, InboxRetention: forwarder.KeepForever, Logger: slog.New(slog.DiscardHandler),
		Routes: route.Routes{"*": route.To("sink")}, Sinks: map[string]forwarder.Sink{"sink": {Sink: sink}},
	})
	require.NoError(t, err)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- f.Run(running) }()
	_, err = db.ExecContext(ctx, `INSERT INTO outbox (id, type, key, payload) VALUES ('a', 't', 'key-a', '{}'), ('b', 't', 'key-b', '{}')`)
	require.NoError(t, err)
	dead := func() (n int) {
		require.NoError(t, db.QueryRowContext(ctx, `SELECT count(*) FROM outbox_parked WHERE state = 'dead'`).Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return dead() == 2 }, time.Minute, 10*time.Millisecond)
	person := admin.New(s, "me")
	plan, err := person.Discard(ctx, admin.Filter{Sink: "sink", ID: "a"})
	require.NoError(t, err)
	_, err = plan.Run(ctx, nil)
	require.NoError(t, err)
	mended.Store(true)
	plan, err = person.Requeue(ctx, admin.Filter{Sink: "sink"})
	require.NoError(t, err)
	_, err = plan.Run(ctx, nil)
	require.NoError(t, err)
	began := time.Now()
	select {
	case id := <-delivered:
		require.Equal(t, "b", id)
		t.Log("after", time.Since(began))
	case <-time.After(25 * time.Second):
		t.Fatal("the requeued delivery was not delivered")
	}
	stop()
	require.NoError(t, <-ended)
}
