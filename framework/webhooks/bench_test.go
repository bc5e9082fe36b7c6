package webhooks_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/outbox"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/webhooks"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
)

// nowhere answers every request at once.
type nowhere struct{ requests atomic.Int64 }

func (n *nowhere) RoundTrip(r *http.Request) (*http.Response, error) {
	n.requests.Add(1)
	return &http.Response{StatusCode: http.StatusNoContent, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// BenchmarkExpand drains notifications of 1,000 tenants to nowhere: the number of operations is that of
// deliveries. Each tenant has 10 endpoints, or none.
func BenchmarkExpand(b *testing.B) {
	for _, attempts := range []webhooks.Attempts{webhooks.AttemptsNone, webhooks.AttemptsAll} {
		b.Run("attempts="+string(attempts), func(b *testing.B) { benchmarkExpand(b, attempts, 10) })
	}
	b.Run("withoutendpoints", func(b *testing.B) { benchmarkExpand(b, webhooks.AttemptsNone, 0) })
}

const tenants = 1000

// withEndpoints returns an outbox with some endpoints for each tenant.
func withEndpoints(b *testing.B, each int) (*sql.DB, *postgres.Store) {
	b.Helper()
	db, s := outboxtest.PostgreSQL(b, outboxtest.DSN(b), postgres.Config{})
	tx, err := db.BeginTx(b.Context(), nil)
	require.NoError(b, err)
	for i := range tenants {
		for j := range each {
			require.NoError(b, s.AddEndpoint(b.Context(), tx, store.Endpoint{
				ID: notification.NewID(), Tenant: fmt.Sprintf("tenant-%04d", i), URL: fmt.Sprintf("https://customer-%d.example/hooks/%d", i, j), Types: []string{"order.*"},
				Private: `{"secrets":[{"secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}]}`,
			}, webhooks.MaxEndpoints))
		}
	}
	require.NoError(b, tx.Commit())
	return db, s
}

// BenchmarkLookup reads the endpoints of 1 or of 1,000 tenants, with 10 each, from the database, as a checkpoint does: the
// first time, and when nothing has changed. B/endpoint is what one takes in memory.
func BenchmarkLookup(b *testing.B) {
	_, s := withEndpoints(b, 10)
	for _, of := range []int{1, tenants} {
		var asked []string
		for i := range of {
			asked = append(asked, fmt.Sprintf("tenant-%04d", i))
		}
		b.Run(fmt.Sprintf("tenants=%d/first", of), func(b *testing.B) {
			var lookups []*webhooks.Lookup
			before := heap()
			for b.Loop() {
				l := webhooks.NewLookup(b, s)
				require.Equal(b, 10*of, l.Read(b, asked))
				if len(lookups) == 0 {
					b.ReportMetric(float64(heap()-before)/float64(10*of), "B/endpoint")
				}
				lookups = append(lookups[:0], l)
			}
		})
		b.Run(fmt.Sprintf("tenants=%d/again", of), func(b *testing.B) {
			l := webhooks.NewLookup(b, s)
			l.Read(b, asked)
			for b.Loop() {
				require.Equal(b, 10*of, l.Read(b, asked))
			}
		})
	}
}

// heap returns the bytes that are in use.
func heap() uint64 {
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return memory.HeapAlloc
}

func benchmarkExpand(b *testing.B, attempts webhooks.Attempts, endpoints int) {
	db, s := withEndpoints(b, endpoints)
	publisher, err := outbox.New(registry.New(), s, outbox.Config{Announcer: outbox.Silent})
	require.NoError(b, err)
	each := max(endpoints, 1)
	originals := (b.N + each - 1) / each
	payload := []byte(`{"order":"1","text":"` + strings.Repeat("x", 300) + `"}`)
	for done := 0; done < originals; done += 1000 {
		var page []notification.Envelope
		for i := done; i < min(done+1000, originals); i++ {
			page = append(page, notification.Envelope{Type: "order.placed", Key: fmt.Sprint("k", i%5000), Payload: payload, Metadata: notification.Metadata{"tenant": fmt.Sprintf("tenant-%04d", i%tenants)}})
		}
		tx, err := db.BeginTx(b.Context(), nil)
		require.NoError(b, err)
		require.NoError(b, publisher.Append(b.Context(), tx, page...))
		require.NoError(b, tx.Commit())
	}
	to := &nowhere{}
	sink, err := webhooks.New(sinks.Instance{Name: "customers", HTTPClient: &http.Client{Transport: to}}, webhooks.Config{Attempts: attempts})
	require.NoError(b, err)
	f, err := forwarder.New(forwarder.Config{
		Store: s, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Sinks: map[string]forwarder.Sink{"customers": {Sink: sink, Start: forwarder.StartOldest}},
		Routes: route.Routes{"order.*": route.To("customers")},
	})
	require.NoError(b, err)
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error)
	b.ResetTimer()
	began := time.Now()
	go func() { ended <- f.Run(ctx) }()
	settled := func() int64 {
		for _, stats := range f.Stats() {
			if stats.Sink == "customers" {
				return stats.Delivered
			}
		}
		return 0
	}
	for settled() < int64(originals+originals*endpoints) {
		time.Sleep(time.Millisecond)
	}
	took := time.Since(began)
	b.StopTimer()
	b.ReportMetric(float64(originals*each)/took.Seconds(), "deliveries/s")
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	b.ReportMetric(float64(memory.HeapInuse)/(1<<20), "heap-MB")
	stop()
	require.NoError(b, <-ended)
}

// BenchmarkDeadTenants measures how long notifications of 900 tenants take from their commit to their endpoint, at
// 500 a second, while 100 others are well, or dead: half of these refuse connections, and half never answer.
func BenchmarkDeadTenants(b *testing.B) {
	for _, dead := range []int{0, 100, 0, 100} {
		b.Run(fmt.Sprint("dead=", dead), func(b *testing.B) { benchmarkDead(b, dead) })
	}
}

// some answers at once, but not for the dead.
type some struct {
	dead int
	mu   sync.Mutex
	took []time.Duration
}

func (s *some) RoundTrip(r *http.Request) (*http.Response, error) {
	var tenant int
	if _, err := fmt.Sscanf(r.URL.Path, "/%d", &tenant); err != nil {
		return nil, err
	}
	switch {
	case tenant < s.dead/2:
		return nil, syscall.ECONNREFUSED
	case tenant < s.dead:
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var sent struct{ Data struct{ At time.Time } }
	if err := json.Unmarshal(body, &sent); err != nil {
		return nil, err
	}
	if tenant >= 100 {
		s.mu.Lock()
		s.took = append(s.took, time.Since(sent.Data.At))
		s.mu.Unlock()
	}
	return &http.Response{StatusCode: http.StatusNoContent, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

func benchmarkDead(b *testing.B, dead int) {
	db, s := outboxtest.PostgreSQL(b, outboxtest.DSN(b), postgres.Config{})
	tx, err := db.BeginTx(b.Context(), nil)
	require.NoError(b, err)
	for i := range tenants {
		require.NoError(b, s.AddEndpoint(b.Context(), tx, store.Endpoint{
			ID: notification.NewID(), Tenant: fmt.Sprint(i), URL: fmt.Sprintf("https://customer.example/%d", i), Types: []string{"*"},
			Private: `{"secrets":[{"secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}]}`,
		}, webhooks.MaxEndpoints))
	}
	require.NoError(b, tx.Commit())
	to := &some{dead: dead}
	sink, err := webhooks.New(sinks.Instance{Name: "customers", HTTPClient: &http.Client{Transport: to}}, webhooks.Config{})
	require.NoError(b, err)
	f, err := forwarder.New(forwarder.Config{
		Store: s, Logger: slog.New(slog.DiscardHandler), Sinks: map[string]forwarder.Sink{"customers": {Sink: sink}},
		Routes: route.Routes{"order.*": route.To("customers")},
	})
	require.NoError(b, err)
	publisher, err := outbox.New(registry.New(), s, outbox.Config{Wake: f.Wake, Announcer: outbox.Silent})
	require.NoError(b, err)
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	time.Sleep(2 * time.Second)
	b.ResetTimer()
	for i := range b.N {
		began := time.Now()
		require.NoError(b, publisher.RunInTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
			at, _ := time.Now().MarshalText()
			return publisher.Append(ctx, tx, notification.Envelope{Type: "order.placed", Payload: []byte(`{"at":"` + string(at) + `"}`), Metadata: notification.Metadata{"tenant": fmt.Sprint(i % tenants)}})
		}))
		time.Sleep(time.Until(began.Add(2 * time.Millisecond)))
	}
	time.Sleep(2 * time.Second)
	b.StopTimer()
	stop()
	require.NoError(b, <-ended)
	to.mu.Lock()
	defer to.mu.Unlock()
	slices.Sort(to.took)
	if n := len(to.took); n > 0 {
		b.ReportMetric(float64(to.took[n/2].Microseconds())/1000, "p50-ms")
		b.ReportMetric(float64(to.took[n*99/100].Microseconds())/1000, "p99-ms")
		b.ReportMetric(float64(n), "received")
	}
}
