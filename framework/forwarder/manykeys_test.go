package forwarder_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/sinks"
)

// TestManyRetryingKeysCostNoLease has more keys in the table than one page holds, and a lease of the
// shortest duration.
func TestManyRetryingKeysCostNoLease(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("50,000 keys")
	}
	const keys = 50_000
	db, err := postgres.OpenDB(postgrestest.DSN(t))
	require.NoError(t, err)
	defer db.Close()
	_, err = postgres.Migrate(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	s, err := postgres.Open(t.Context(), db, postgres.Config{})
	require.NoError(t, err)
	_, err = s.Cut(t.Context(), "sink", 1, store.StartOldest)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, due_at)
		SELECT 'sink', i, i & 1023, 'id-' || i, 'a', 1, 'customer-' || i, now(), '{}', '{"some":"payload of usual length"}', 'retrying', 0, now() FROM generate_series(1, $1::int) i`, keys)
	require.NoError(t, err)

	fresh := make(chan string, 2)
	var parked atomic.Int64
	var seen sync.Map
	sink := sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
		if d.Type == "fresh" {
			fresh <- d.ID
		} else {
			_, again := seen.LoadOrStore(d.ID, true)
			assert.False(t, again, d.ID)
			parked.Add(1)
		}
		return "", nil
	})
	leases := &leases{}
	f, err := forwarder.New(forwarder.Config{
		Store: s, Routes: route.Routes{"*": route.To("sink")}, Lease: time.Second, Retention: forwarder.KeepForever, InboxRetention: forwarder.KeepForever,
		Sinks: map[string]forwarder.Sink{"sink": {Sink: sink}}, Observer: leases, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	defer func() { stop(); require.NoError(t, <-ended) }()
	arrives := func(id string) {
		t.Helper()
		_, err := db.ExecContext(ctx, `INSERT INTO outbox (id, type, key, payload) VALUES ($1, 'fresh', 'customer-new', '{}')`, id)
		require.NoError(t, err)
		f.Wake()
		select {
		case got := <-fresh:
			require.Equal(t, id, got)
		case <-time.After(30 * time.Second):
			t.Fatal("a new delivery waits behind parked ones")
		}
	}
	reaches := func(n int64) {
		t.Helper()
		require.Eventually(t, func() bool { return parked.Load() >= n }, 60*time.Second, 20*time.Millisecond, "parked deliveries are retried")
	}
	reaches(1000)
	arrives("first")
	_, err = db.ExecContext(ctx, `UPDATE outbox_cursors SET revision = revision + 1 WHERE sink = 'sink'`) // as an operator's action does
	require.NoError(t, err)
	reaches(parked.Load() + 1000)
	arrives("second")
	reaches(parked.Load() + 1000)
	require.Zero(t, leases.lost.Load())
}
