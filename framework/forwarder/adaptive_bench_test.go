package forwarder_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/httpsink"
)

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
