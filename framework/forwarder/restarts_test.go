package forwarder_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/sinks"
)

// TestDeliveriesAreNotRepeatedThroughCrashesOfTheDatabase restarts PostgreSQL three times, a second
// apart, while 16 deliveries are in flight. The forwarder's process survives, so it knows what it has
// delivered.
func TestDeliveriesAreNotRepeatedThroughCrashesOfTheDatabase(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("this starts a separate server")
	}
	ctx := t.Context()
	server, err := postgrestest.Start(ctx, postgrestest.Options{Private: true, Settings: map[string]string{"shared_buffers": "32MB"}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	db, err := postgres.OpenDB(server.DSN())
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = postgres.Migrate(ctx, db, postgres.Config{})
	require.NoError(t, err)
	s, err := postgres.Open(ctx, db, postgres.Config{})
	require.NoError(t, err)
	const rows, restarts = 12_000, 3
	_, err = db.ExecContext(ctx, fmt.Sprintf(`INSERT INTO outbox (id, type, key, payload) SELECT i::text, 't', (i %% 500)::text, '{}' FROM generate_series(1, %d) i`, rows))
	require.NoError(t, err)

	var log lines
	var mu sync.Mutex
	made := make(map[string]int)
	sink := sinks.Func(func(_ context.Context, d *notification.Delivery) (notification.Receipt, error) {
		time.Sleep(2 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		made[d.ID]++
		return "", nil
	})
	count := func() (delivered, repeats int) {
		mu.Lock()
		defer mu.Unlock()
		for _, n := range made {
			repeats += n - 1
		}
		return len(made), repeats
	}
	f, err := forwarder.New(forwarder.Config{
		Store: s, Lease: 2 * time.Second, Retention: forwarder.KeepForever, InboxRetention: forwarder.KeepForever, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Routes: route.Routes{"*": route.To("sink")},
		Sinks:  map[string]forwarder.Sink{"sink": {Sink: sink, Parallelism: forwarder.Parallelism{Threshold: 16}}},
	})
	require.NoError(t, err)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- f.Run(running) }()
	reaches := func(share int) {
		t.Helper()
		require.Eventually(t, func() bool { n, _ := count(); return n >= rows*share/(restarts+1) }, time.Minute, time.Millisecond)
	}
	for i := range restarts {
		reaches(i + 1)
		require.NoError(t, server.Down(postgrestest.Immediate))
		time.Sleep(time.Second) // deliveries could begin during the outage
		require.NoError(t, server.Up())
	}
	require.Eventually(t, func() bool { // everything is settled, so nothing is repeated later
		status, err := s.Status(ctx, store.StatusQuery{})
		n, _ := count()
		return err == nil && n == rows && len(status.Cursors) > 0 && status.Cursors[len(status.Cursors)-1].Pending == 0
	}, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	delivered, repeats := count()
	t.Logf("%d delivered, %d repeats in %d restarts", delivered, repeats, restarts)
	require.Equal(t, rows, delivered)
	require.Zero(t, repeats, "no delivery is repeated\n%s", strings.Join(log.with(""), "\n"))
}
