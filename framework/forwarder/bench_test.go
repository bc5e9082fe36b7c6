package forwarder_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
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

// slow is a sink that waits in each delivery and reports when n of those that count have ended.
type slow struct {
	counter
	takes  time.Duration
	took   atomic.Int64                        // by all deliveries, in nanoseconds: sleeps take longer than requested
	counts func(d *notification.Delivery) bool // nil: all
}

func newSlow(n int, takes time.Duration, counts func(*notification.Delivery) bool) *slow {
	return &slow{counter: counter{n: int64(n), done: make(chan struct{})}, takes: takes, counts: counts}
}

func (s *slow) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	began := time.Now()
	time.Sleep(s.takes)
	s.took.Add(int64(time.Since(began)))
	if s.counts != nil && !s.counts(d) {
		return "", nil
	}
	return s.counter.Deliver(ctx, d)
}

// forward runs a forwarder until wait returns, and returns the time since its first delivery.
func (l *backlog) forward(to map[string]forwarder.Sink, began *atomic.Int64, wait func()) time.Duration {
	l.b.Helper()
	routes := route.Routes{"*": route.To(slices.Collect(maps.Keys(to))...)}
	f, err := forwarder.New(forwarder.Config{Store: l.store, Routes: routes, Sinks: to, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(l.b, err)
	running, stop := context.WithCancel(l.b.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(running) }()
	wait()
	took := time.Since(time.Unix(0, began.Load()))
	stop()
	require.NoError(l.b, <-ended)
	return took
}

// timed records when the first delivery of a sink began.
func timed(s sinks.Sink, began *atomic.Int64) sinks.Sink {
	return sinks.Func(func(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
		if began.Load() == 0 {
			began.CompareAndSwap(0, time.Now().UnixNano())
		}
		return s.Deliver(ctx, d)
	})
}

const (
	benchTakes     = 5 * time.Millisecond
	benchThreshold = 64
)

// drainSlow delivers the whole backlog to a sink that takes 5 ms per delivery, 64 at once. It returns
// the counted deliveries per second, and the fraction of the sink's slots that was in use.
func (l *backlog) drainSlow(n int, counts func(*notification.Delivery) bool) (rate, used float64) {
	l.b.Helper()
	var began atomic.Int64
	sink := newSlow(n, benchTakes, counts)
	took := l.forward(map[string]forwarder.Sink{
		"slow": {Sink: timed(sink, &began), Parallelism: forwarder.Parallelism{Threshold: benchThreshold}},
	}, &began, func() { <-sink.done })
	return float64(n) / took.Seconds(), float64(sink.took.Load()) / float64(took) / benchThreshold
}

// BenchmarkCollect collects 200,000 pending notifications of 1,000 keys by key, a hundred in each delivery.
func BenchmarkCollect(b *testing.B) {
	const n, keys = 200_000, 1_000
	var took time.Duration
	for b.Loop() {
		l := newBacklog(b)
		l.add(n)
		began := time.Now()
		sink := &collector{}
		f, err := forwarder.New(forwarder.Config{
			Store: l.store, Routes: route.Routes{"*": route.To("digest")}, Logger: slog.New(slog.DiscardHandler),
			Sinks: map[string]forwarder.Sink{"digest": {Sink: sink, Collect: forwarder.Collect{Wait: time.Hour, Size: n / keys / 2}}},
		})
		require.NoError(b, err)
		running, stop := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Run(running) }()
		for f.Stats()[0].Delivered < n {
			time.Sleep(time.Millisecond)
		}
		took += time.Since(began)
		require.EqualValues(b, 2*keys, f.Stats()[0].Collections)
		stop()
		require.NoError(b, <-ended)
	}
	b.ReportMetric(float64(n*b.N)/took.Seconds(), "notifications/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkBesideCollecting drains a lane beside no and a million members of open collections of its sink.
func BenchmarkBesideCollecting(b *testing.B) {
	const n = 300_000
	for name, collecting := range map[string]int{"none": 0, "a-million": 1_000_000} {
		b.Run(name, func(b *testing.B) {
			l := newBacklog(b)
			l.add(n)
			l.exec(`INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, collect_group)
				SELECT 'nowhere', 1000000000 + i, i % 1024, 'c' || i, 't', 1, '', now(), '{}', '{}', 'collecting', 0, 'g' || i % 10000 FROM generate_series(1, $1::int) i`, collecting)
			l.exec(`INSERT INTO outbox_collections (sink, collect_group, slot, members, due_at, due_by)
				SELECT 'nowhere', 'g' || i, i % 1024, 100, now() + interval '1 day', now() + interval '1 day' FROM generate_series(1, least($1::int, 10000)) i`, collecting)
			l.exec(`ANALYZE`)
			var took time.Duration
			for b.Loop() {
				l.again()
				took += l.drain(n)
			}
			b.ReportMetric(n*float64(b.N)/took.Seconds(), "notifications/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkNewest drains 200,000 pending notifications of 1,000 keys of which only the newest count, beside a drain of as
// many to nowhere. The figure is the time until all rows but the newest are settled.
func BenchmarkNewest(b *testing.B) {
	const n, keys = 200_000, 1_000
	var nowhere, newest time.Duration
	delivered := int64(0)
	for b.Loop() {
		l := newBacklog(b)
		l.add(n)
		nowhere += l.drain(n)
		l = newBacklog(b)
		l.add(n)
		began := time.Now()
		sink := &counter{n: keys, done: make(chan struct{})}
		f, err := forwarder.New(forwarder.Config{
			Store: l.store, Routes: route.Routes{"*": route.To("nowhere")}, Logger: slog.New(slog.DiscardHandler),
			Sinks: map[string]forwarder.Sink{"nowhere": {Sink: sink, Collect: forwarder.Collect{Keep: forwarder.KeepNewest, Wait: 2 * time.Second}}},
		})
		require.NoError(b, err)
		running, stop := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() { ended <- f.Run(running) }()
		for f.Stats()[0].Superseded < n-keys {
			time.Sleep(time.Millisecond)
		}
		newest += time.Since(began)
		<-sink.done
		stop()
		require.NoError(b, <-ended)
		delivered += sink.got.Load()
	}
	b.ReportMetric(float64(n*b.N)/nowhere.Seconds(), "nowhere-rows/s")
	b.ReportMetric(float64(n*b.N)/newest.Seconds(), "newest-rows/s")
	b.ReportMetric(float64(delivered)/float64(b.N), "deliveries")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSlowSink measures the delivery of a backlog with 1,000 keys to a sink that takes 5 ms per
// delivery, 64 at once. 1 is the maximum, with all slots in use. The difference between the two
// results shows how much longer than 5 ms the machine sleeps.
func BenchmarkSlowSink(b *testing.B) {
	const n = 50_000
	l := newBacklog(b)
	l.add(n)
	var rate, used float64
	for b.Loop() {
		l.again()
		r, u := l.drainSlow(n, nil)
		rate, used = rate+r, used+u
	}
	b.ReportMetric(rate/float64(b.N), "deliveries/s")
	b.ReportMetric(rate/float64(b.N)/(benchThreshold/benchTakes.Seconds()), "of-what-it-allows")
	b.ReportMetric(used/float64(b.N), "of-its-slots-in-use")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkBesideAHotKey compares the deliveries of 1,000 keys beside a hot key, which has as many as
// all of them, with those of the 1,000 keys alone. 1 means no difference.
func BenchmarkBesideAHotKey(b *testing.B) {
	const n = 100_000
	alone, beside := newBacklog(b), newBacklog(b)
	alone.add(n)
	beside.exec(`INSERT INTO outbox (type, key, metadata, payload)
		SELECT 'order.placed', CASE WHEN i % 2 = 0 THEN 'hot' ELSE 'k' || i % 1000 END, '{}', json_build_object('n', i, 'pad', repeat('x', 280))
		FROM generate_series(1, 2 * $1::int) i`, n)
	others := func(d *notification.Delivery) bool { return d.Key != "hot" }
	var without, with float64
	for b.Loop() {
		alone.again()
		r, _ := alone.drainSlow(n, others)
		without += r
		beside.again()
		beside.exec(`TRUNCATE outbox_parked`)
		r, _ = beside.drainSlow(n, others)
		with += r
	}
	b.ReportMetric(with/without, "throughput-ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkScheduled measures the delay of deliveries that become due at 1,000 per second, beside a
// million that are due an hour later.
func BenchmarkScheduled(b *testing.B) {
	const n, others = 2000, 1_000_000
	l := newBacklog(b)
	l.exec(`INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, due_at)
		SELECT 'slow', -i, i % 1024, 'p' || i, 'order.later', 1, 'p' || i % 10000, now(), '{}', '{}', 'scheduled', 0, now() + interval '1 hour'
		FROM generate_series(1, $1::int) i`, others)
	var late []time.Duration
	for b.Loop() {
		l.again()
		l.exec(`INSERT INTO outbox (type, key, deliver_at, payload) SELECT 'order.reminder', 'k' || i, now() + interval '3 s' + i * interval '1 ms', '{}'
			FROM generate_series(1, $1::int) i`, n)
		var mu sync.Mutex
		var began atomic.Int64
		sink := newSlow(n, 0, func(d *notification.Delivery) bool {
			mu.Lock()
			defer mu.Unlock()
			late = append(late, time.Since(d.DeliverAt))
			return true
		})
		l.forward(map[string]forwarder.Sink{"slow": {Sink: sink}}, &began, func() { <-sink.done })
		l.exec(`TRUNCATE outbox`)
	}
	slices.Sort(late)
	b.ReportMetric(float64(late[len(late)/2].Microseconds())/1000, "late-p50-ms")
	b.ReportMetric(float64(late[len(late)*99/100].Microseconds())/1000, "late-p99-ms")
	b.ReportMetric(float64(late[len(late)-1].Microseconds())/1000, "late-max-ms")
	b.ReportMetric(0, "ns/op")
}

// changing is an HTTP server that handles 4 requests at once, for 20 ms each. After the first twelfth
// of n it handles 64, and for the last twelfth 4 again. Other requests wait, or get 429.
type changing struct {
	n, refuses int
	slots      *semaphore.Weighted
	taken      atomic.Int64
	refused    atomic.Int64
}

const (
	leastCapacity = 4
	mostCapacity  = 64
)

func newChanging(n, refuses int) *changing {
	s := &changing{n: n, refuses: refuses, slots: semaphore.NewWeighted(mostCapacity)}
	s.slots.TryAcquire(mostCapacity - leastCapacity)
	return s
}

func (s *changing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.refuses > 0 && !s.slots.TryAcquire(1) {
		s.refused.Add(1)
		w.Header().Set("Retry-After", fmt.Sprint(s.refuses))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	if s.refuses == 0 && s.slots.Acquire(r.Context(), 1) != nil {
		return
	}
	time.Sleep(20 * time.Millisecond)
	switch s.taken.Add(1) {
	case int64(s.n / 12):
		s.slots.Release(mostCapacity - leastCapacity)
	case int64(s.n - s.n/12):
		go func() { _ = s.slots.Acquire(context.WithoutCancel(r.Context()), mostCapacity-leastCapacity) }()
	}
	s.slots.Release(1)
}

// BenchmarkAdaptive delivers a backlog to a server whose capacity changes, with fixed thresholds and an
// adaptive one, and reports deliveries per second relative to the best fixed one. A single host gets
// half of the slots of the http sink.
func BenchmarkAdaptive(b *testing.B) {
	const n = 12_000
	l := newBacklog(b)
	l.add(n)
	for name, refuses := range map[string]int{"waits": 0, "refuses": 1} {
		b.Run(name, func(b *testing.B) {
			drain := func(p forwarder.Parallelism) (rate, refused float64) {
				l.again()
				s := newChanging(n, refuses)
				server := httptest.NewServer(s)
				defer server.Close()
				sink, err := httpsink.New(sinks.Instance{Name: "http"}, httpsink.Config{URL: server.URL})
				require.NoError(b, err)
				all := newSlow(n, 0, nil)
				var began atomic.Int64
				counted := tallied{sink, all, &began}
				took := l.forward(map[string]forwarder.Sink{"http": {Sink: counted, Parallelism: p}}, &began, func() { <-all.done })
				return n / took.Seconds(), float64(s.refused.Load()) / float64(n+s.refused.Load())
			}
			var best, adaptive, refused float64
			for b.Loop() {
				fixed := 0.0
				for _, threshold := range []int{64, 128, 512} {
					rate, _ := drain(forwarder.Parallelism{Threshold: threshold})
					b.Logf("threshold %d: %.0f/s", threshold, rate)
					fixed = max(fixed, rate)
				}
				rate, share := drain(forwarder.Parallelism{Adaptive: forwarder.Adaptive{Min: 1, Max: 512}})
				b.Logf("adaptive: %.0f/s", rate)
				best, adaptive, refused = best+fixed, adaptive+rate, refused+share
			}
			b.ReportMetric(adaptive/float64(b.N), "deliveries/s")
			b.ReportMetric(adaptive/best, "of-the-best-fixed")
			b.ReportMetric(refused/float64(b.N), "refused")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// tallied counts the deliveries of an http sink.
type tallied struct {
	*httpsink.Sink
	all   *slow
	began *atomic.Int64
}

func (s tallied) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	s.began.CompareAndSwap(0, time.Now().UnixNano())
	receipt, err := s.Sink.Deliver(ctx, d)
	if err == nil {
		_, _ = s.all.Deliver(ctx, d)
	}
	return receipt, err
}

var _ sinks.Addresser = tallied{}

// BenchmarkFailing measures deliveries that are parked after each of three failed attempts, and made with the fourth.
func BenchmarkFailing(b *testing.B) {
	const n = 1000
	l := newBacklog(b)
	l.add(n)
	var took time.Duration
	for b.Loop() {
		l.again()
		var began atomic.Int64
		made := &counter{n: n, done: make(chan struct{})}
		busy := errors.New("https://partner.example/orders: 503 Service Unavailable: the partner is overloaded, try again later")
		sink := sinks.Func(func(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
			if d.Attempt < 4 {
				return "", busy
			}
			return made.Deliver(ctx, d)
		})
		took += l.forward(map[string]forwarder.Sink{"busy": {
			Sink: timed(sink, &began), Parallelism: forwarder.Parallelism{Threshold: benchThreshold},
			Retry: forwarder.Retry{Initial: time.Millisecond, Max: time.Millisecond}, Breaker: forwarder.Breaker{Off: true},
		}}, &began, func() { <-made.done })
	}
	b.ReportMetric(n*float64(b.N)/took.Seconds(), "deliveries/s")
	b.ReportMetric(0, "ns/op")
}
