package forwarder_test

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/sinks"
)

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

// BenchmarkBesideADeadSink compares two sinks beside a dead third sink with the two sinks alone. 1 means
// no difference.
func BenchmarkBesideADeadSink(b *testing.B) {
	const n = 200_000
	l := newBacklog(b)
	l.add(n)
	drain := func(dead bool) time.Duration {
		l.again()
		var began atomic.Int64
		one, two := newSlow(n, 0, nil), newSlow(n, 0, nil)
		to := map[string]forwarder.Sink{"one": {Sink: timed(one, &began)}, "two": {Sink: two}}
		if dead {
			to["dead"] = forwarder.Sink{Sink: sinks.Func(func(context.Context, *notification.Delivery) (notification.Receipt, error) {
				return "", sinks.Unavailable(context.DeadlineExceeded)
			})}
		}
		return l.forward(to, &began, func() { <-one.done; <-two.done })
	}
	drain(false) // warm-up
	var without, with time.Duration
	for b.Loop() {
		without += drain(false)
		with += drain(true)
	}
	b.ReportMetric(without.Seconds()/with.Seconds(), "throughput-ratio")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkBesideParked compares new deliveries beside 100,000 parked ones with new ones alone. 1
// means no difference. The parked ones are due later, or all due now and share the sink.
func BenchmarkBesideParked(b *testing.B) {
	const n, parked = 50_000, 100_000
	for name, due := range map[string]string{"waiting": "1 hour", "due": "-1 hour"} {
		b.Run(name, func(b *testing.B) {
			l := newBacklog(b)
			l.add(n)
			fresh := func(d *notification.Delivery) bool { return d.Type == "order.placed" }
			l.drainSlow(n, nil) // warm-up
			var without, with float64
			for b.Loop() {
				l.again()
				r, _ := l.drainSlow(n, fresh)
				without += r
				l.again()
				l.exec(`INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt, due_at)
					SELECT 'slow', -i, i % 1024, 'p' || i, 'order.failed', 1, 'p' || i, now(), '{}', '{}', 'retrying', 1, now() + $1::interval
					FROM generate_series(1, $2::int) i`, due, parked)
				r, _ = l.drainSlow(n, fresh)
				with += r
				l.exec(`TRUNCATE outbox_parked`)
			}
			b.ReportMetric(with/without, "throughput-ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
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
