package forwarder_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// counter is a sink that takes everything and tells when it has n.
type counter struct {
	n    int64
	got  atomic.Int64
	done chan struct{}
}

func (c *counter) Deliver(context.Context, *notification.Delivery) (notification.Receipt, error) {
	if c.got.Add(1) == c.n {
		close(c.done)
	}
	return "", nil
}

// BenchmarkDrain measures a backlog of 300-byte notifications over 1,000 keys on
// its way to a sink that does nothing.
func BenchmarkDrain(b *testing.B) {
	const backlog = 300_000
	db, err := postgres.OpenDB(postgrestest.DSN(b))
	require.NoError(b, err)
	defer func() { _ = db.Close() }()
	ctx := b.Context()
	_, err = postgres.Migrate(ctx, db, postgres.Config{})
	require.NoError(b, err)
	_, err = db.ExecContext(ctx, `INSERT INTO outbox (type, key, metadata, payload)
		SELECT 'order.placed', 'k' || i % 1000, '{"content-type":"application/json"}', json_build_object('n', i, 'pad', repeat('x', 280))
		FROM generate_series(1, $1::int) i`, backlog)
	require.NoError(b, err)
	s, err := postgres.Open(ctx, db, postgres.Config{})
	require.NoError(b, err)
	for b.Loop() {
		_, err := db.ExecContext(ctx, `DELETE FROM outbox_cursors`)
		require.NoError(b, err)
		sink := &counter{n: backlog, done: make(chan struct{})}
		f, err := forwarder.New(forwarder.Config{
			Store: s, Routes: map[string][]string{"*": {"nowhere"}}, Logger: slog.New(slog.DiscardHandler),
			Sinks: map[string]forwarder.Sink{"nowhere": {Sink: sink, Parallelism: forwarder.Parallelism{Threshold: 256}}},
		})
		require.NoError(b, err)
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- f.Run(running) }()
		<-sink.done
		stop()
		require.NoError(b, <-ended)
	}
	b.ReportMetric(float64(backlog)*float64(b.N)/b.Elapsed().Seconds(), "notifications/s")
}
