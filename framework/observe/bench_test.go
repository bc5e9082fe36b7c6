//go:build unix

package observe_test

import (
	"context"
	"database/sql"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/observe"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
)

// counter is a sink that accepts everything, and signals when it has n deliveries.
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

// cost is the time that a run takes.
type cost struct{ time, processor time.Duration }

// processorTime returns the processor time that this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// median returns the median of at least one value.
func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// BenchmarkDrainWithMetrics drains a backlog to a sink that does nothing, alternately with and
// without a monitor that is scraped every second. The ratios are medians of the pairs: 1 means no
// difference, and more means that the monitor costs time. On a busy machine the ratio of processor
// time is more reliable.
func BenchmarkDrainWithMetrics(b *testing.B) {
	const n = 300_000
	o := onPostgres(b, outboxtest.DSN(b))
	_, err := o.db.ExecContext(b.Context(), `INSERT INTO outbox (type, key, metadata, payload)
		SELECT 'order.placed', 'k' || i % 1000, '{"content-type":"application/json"}', json_build_object('n', i, 'pad', repeat('x', 280))
		FROM generate_series(1, $1::int) i`, n)
	require.NoError(b, err)
	drain := func(m *observe.Monitor) (cost cost) {
		_, err := o.db.ExecContext(b.Context(), `DELETE FROM outbox_cursors`)
		require.NoError(b, err)
		runtime.GC()
		began, used := time.Now(), processorTime(b)
		sink := &counter{n: n, done: make(chan struct{})}
		c := forwarder.Config{
			Store: o.store, Routes: route.Routes{"*": route.To("nowhere")}, Logger: slog.New(slog.DiscardHandler),
			Sinks: map[string]forwarder.Sink{"nowhere": {Sink: sink, Parallelism: forwarder.Parallelism{Threshold: 256}}},
		}
		if m != nil {
			c.Observer = m
		}
		f, err := forwarder.New(c)
		require.NoError(b, err)
		ctx, stop := context.WithCancel(b.Context())
		ended := make(chan struct{})
		if m != nil {
			defer m.Watch(observe.Target{Forwarder: f, Store: o.store, DB: o.db})()
			go m.Run(ctx)
			go func() {
				ticks := time.NewTicker(time.Second)
				defer ticks.Stop()
				for {
					select {
					case <-ctx.Done():
						return
					case <-ticks.C:
						m.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
					}
				}
			}()
		}
		go func() {
			defer close(ended)
			_ = f.Run(ctx)
		}()
		<-sink.done
		stop()
		<-ended
		require.EqualValues(b, n, sink.got.Load(), "once each")
		cost.time, cost.processor = time.Since(began), processorTime(b)-used
		return cost
	}
	watched := func() cost { return drain(observe.New(observe.Config{})) }
	drain(nil) // warm-up
	watched()
	var processor, wall []float64
	for i := 0; b.Loop(); i++ {
		var without, with cost
		if i%2 == 0 {
			without, with = drain(nil), watched()
		} else {
			with, without = watched(), drain(nil)
		}
		processor = append(processor, with.processor.Seconds()/without.processor.Seconds())
		wall = append(wall, with.time.Seconds()/without.time.Seconds())
		b.Logf("processor %s without, %s with metrics", without.processor, with.processor)
	}
	b.ReportMetric(median(processor), "processor-ratio")
	b.ReportMetric(median(wall), "time-ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkScrapeOfAMillionParked measures samples and scrapes of a forwarder with a million parked
// deliveries. The database has no statistics, as if all had just been parked.
func BenchmarkScrapeOfAMillionParked(b *testing.B) {
	b.Run("postgres", func(b *testing.B) { scrapeOfAMillion(b, onPostgres(b, outboxtest.DSN(b))) })
	b.Run("sqlite", func(b *testing.B) { scrapeOfAMillion(b, onSQLite(b)) })
}

// stored formats a time for both databases.
func stored(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000000") }

func scrapeOfAMillion(b *testing.B, o *outbox) {
	for first, state := range map[int]string{1: "dead", 500_001: "retrying"} {
		due := sql.NullString{String: stored(time.Now().Add(time.Hour)), Valid: state == "retrying"}
		_, err := o.db.ExecContext(b.Context(), `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, due_at)
			WITH RECURSIVE g(i) AS (SELECT CAST($1 AS integer) UNION ALL SELECT i + 1 FROM g WHERE i < CAST($1 AS integer) + 499999)
			SELECT 'events', i, i % 1024, 'n' || i, 'order.placed', 1, 'k' || i % 5000, $2, '{}', '{}', $3, 1, $4 FROM g`, first, stored(time.Now()), state, due)
		require.NoError(b, err)
	}
	m := observe.New(observe.Config{Interval: 100 * time.Millisecond})
	sampling(b, m)
	o.run(b, m, o.config(m, map[string]forwarder.Sink{"events": {Sink: byType{}}}))
	var sampled, scraped []float64
	for b.Loop() {
		<-m.Sampled()
		began := time.Now()
		m.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
		scraped = append(scraped, time.Since(began).Seconds()*1000)
		s := scrape(b, m)
		sampled = append(sampled, s.value("waybill_sample_duration_seconds")*1000)
		require.EqualValues(b, store.ParkedLimit, s.value("waybill_parked", "sink=events", "state=dead"))
	}
	b.ReportMetric(median(sampled), "ms/sample")
	b.ReportMetric(median(scraped), "ms/scrape")
	b.ReportMetric(slices.Max(scraped), "ms/slowest-scrape")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkAttempt measures the cost of a monitor for each delivery.
func BenchmarkAttempt(b *testing.B) {
	m := observe.New(observe.Config{})
	delivery := &notification.Delivery{Envelope: &notification.Envelope{OccurredOn: time.Now().Add(-time.Minute)}, Sink: "events"}
	attempt := &event.Attempt{Delivery: delivery, Began: time.Now(), Duration: time.Millisecond}
	for b.Loop() {
		m.Observe(attempt)
	}
}

// BenchmarkPublished measures the cost of counting types in a call that publishes ten notifications.
func BenchmarkPublished(b *testing.B) {
	envelopes := make([]notification.Envelope, 10)
	for i := range envelopes {
		envelopes[i].Type = "order.placed"
	}
	for name, types := range map[string]bool{"on": true, "off": false} {
		b.Run(name, func(b *testing.B) {
			m := observe.New(observe.Config{Types: types})
			b.ReportAllocs()
			for b.Loop() {
				m.Published(envelopes)
			}
		})
	}
}
