package webhooks_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
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

func benchmarkExpand(b *testing.B, attempts webhooks.Attempts, endpoints int) {
	const tenants = 1000
	db, s := outboxtest.PostgreSQL(b, outboxtest.DSN(b), postgres.Config{})
	var rows []store.Endpoint
	for i := range tenants {
		for j := range endpoints {
			rows = append(rows, store.Endpoint{
				ID: notification.NewID(), Tenant: fmt.Sprintf("tenant-%04d", i), URL: fmt.Sprintf("https://customer-%d.example/hooks/%d", i, j), Types: []string{"order.*"},
				Private: `{"secrets":[{"secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}]}`,
			})
		}
	}
	tx, err := db.BeginTx(b.Context(), nil)
	require.NoError(b, err)
	for _, row := range rows {
		require.NoError(b, s.AddEndpoint(b.Context(), tx, row, webhooks.MaxEndpoints))
	}
	require.NoError(b, tx.Commit())
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
