package forwarder_test

import (
	"context"
	"database/sql"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// counter is a sink that accepts everything and closes a channel after n deliveries.
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

// backlog is a log of 300-byte notifications over 1,000 keys.
type backlog struct {
	b     *testing.B
	db    *sql.DB
	store *postgres.Store
}

func newBacklog(b *testing.B) *backlog {
	b.Helper()
	db, err := postgres.OpenDB(postgrestest.DSN(b))
	require.NoError(b, err)
	b.Cleanup(func() { _ = db.Close() })
	_, err = postgres.Migrate(b.Context(), db, postgres.Config{})
	require.NoError(b, err)
	s, err := postgres.Open(b.Context(), db, postgres.Config{})
	require.NoError(b, err)
	return &backlog{b, db, s}
}

func (l *backlog) exec(query string, args ...any) {
	l.b.Helper()
	_, err := l.db.ExecContext(l.b.Context(), query, args...)
	require.NoError(l.b, err)
}

func (l *backlog) add(n int) {
	l.b.Helper()
	l.exec(`INSERT INTO outbox (type, key, metadata, payload)
		SELECT 'order.placed', 'k' || i % 1000, '{"content-type":"application/json"}', json_build_object('n', i, 'pad', repeat('x', 280))
		FROM generate_series(1, $1::int) i`, n)
}

// drain delivers n pending notifications to a sink that does nothing, and returns the duration
// including start and stop.
func (l *backlog) drain(n int) time.Duration {
	l.b.Helper()
	began := time.Now()
	sink := &counter{n: int64(n), done: make(chan struct{})}
	f, err := forwarder.New(forwarder.Config{
		Store: l.store, Routes: route.Routes{"*": route.To("nowhere")}, Logger: slog.New(slog.DiscardHandler),
		Sinks: map[string]forwarder.Sink{"nowhere": {Sink: sink, Parallelism: forwarder.Parallelism{Threshold: 256}}},
	})
	require.NoError(l.b, err)
	running, stop := context.WithCancel(l.b.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(running) }()
	<-sink.done
	stop()
	require.NoError(l.b, <-ended)
	require.EqualValues(l.b, n, sink.got.Load(), "once each")
	return time.Since(began)
}

// again resets the cursors to the beginning.
func (l *backlog) again() {
	l.b.Helper()
	l.exec(`DELETE FROM outbox_cursors`)
}

// BenchmarkDrain measures the delivery of a backlog to a sink that does nothing.
func BenchmarkDrain(b *testing.B) {
	const n = 300_000
	l := newBacklog(b)
	l.add(n)
	var took time.Duration
	for b.Loop() {
		l.again()
		took += l.drain(n)
	}
	b.ReportMetric(n*float64(b.N)/took.Seconds(), "notifications/s")
}

// BenchmarkDrainBesideAnOpenTransaction drains in turn with and without an open transaction that took
// its id and an offset before all others, and compares the two. 1 means no difference.
func BenchmarkDrainBesideAnOpenTransaction(b *testing.B) {
	const n = 300_000
	l := newBacklog(b)
	beside := newBacklog(b)
	open, err := beside.db.BeginTx(b.Context(), nil)
	require.NoError(b, err)
	defer func() { _ = open.Rollback() }()
	_, err = open.ExecContext(b.Context(), `INSERT INTO outbox (type, payload) VALUES ('open', '{}')`)
	require.NoError(b, err)
	l.add(n)
	beside.add(n)
	l.drain(n) // warm-up
	beside.drain(n)
	var without, with time.Duration
	for b.Loop() {
		l.again()
		without += l.drain(n)
		beside.again()
		with += beside.drain(n)
	}
	b.ReportMetric(without.Seconds()/with.Seconds(), "throughput-ratio")
	b.ReportMetric(n*float64(b.N)/with.Seconds(), "notifications/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkDeadTuples counts the dead tuples that a million notifications leave behind in the log and
// in the cursors' table.
func BenchmarkDeadTuples(b *testing.B) {
	const n, times = 200_000, 5
	for b.Loop() {
		l := newBacklog(b)
		l.exec(`ALTER TABLE outbox SET (autovacuum_enabled = off); ALTER TABLE outbox_cursors SET (autovacuum_enabled = off)`)
		for range times {
			l.add(n)
			l.drain(n)
		}
		l.exec(`SELECT pg_stat_clear_snapshot()`)
		dead := func(table string) (count float64) {
			l.exec(`ANALYZE ` + table) // ANALYZE counts them
			require.NoError(b, l.db.QueryRowContext(b.Context(), `SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = $1`, table).Scan(&count))
			return count
		}
		b.ReportMetric(dead("outbox"), "dead-in-outbox")
		b.ReportMetric(dead("outbox_cursors"), "dead-in-cursors")
	}
}
