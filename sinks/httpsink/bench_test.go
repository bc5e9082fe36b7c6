//go:build unix

package httpsink

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/internal/turns"
)

const (
	benchmarkInFlight = 64
	benchmarkTurn     = 20 * benchmarkInFlight // calls for each of b.N
)

// BenchmarkDeliver compares the sink with net/http alone, with the same server, payload and number
// of requests in flight:
//
//   - bare: a loop that posts the payload and discards the response;
//   - bare-headers: the same loop with constant headers like those of the sink;
//   - sink, sink-signed: Deliver.
//
// Run: go test -run '^$' -bench Deliver -benchtime 200x ./sinks/httpsink
func BenchmarkDeliver(b *testing.B) {
	d := benchmarkDelivery()
	server := benchmarkServer(b)
	deliver := func(secret string) func(int) error {
		sink := benchmarkSink(b, server.URL, secret)
		return func(int) error {
			_, err := sink.Deliver(b.Context(), d)
			return err
		}
	}
	contender := func(name string, call func(int) error) turns.Contender {
		return turns.Contender{Name: name, Do: turns.Split(b, benchmarkInFlight, call)}
	}
	turns.Compare(b, benchmarkTurn,
		contender("bare", bareLoop(b, server.URL, d.Payload, http.Header{"Content-Type": {"application/json"}})),
		contender("bare-headers", bareLoop(b, server.URL, d.Payload, benchmarkSink(b, server.URL, "").header(d).header)),
		contender("sink", deliver("")),
		contender("sink-signed", deliver(vectorSecret)),
	)
}

func benchmarkDelivery() *notification.Delivery {
	return &notification.Delivery{
		Envelope: &notification.Envelope{
			ID:         notification.NewID(),
			Type:       "order.placed",
			Version:    1,
			Key:        "customer-4711",
			OccurredOn: time.Now().UTC(),
			Metadata: notification.Metadata{
				notification.MetadataContentType:   "application/json",
				notification.MetadataCorrelationID: notification.NewID(),
				notification.MetadataTraceparent:   "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			},
			Payload: append(append([]byte(`{"text":"`), bytes.Repeat([]byte("x"), 380)...), `"}`...),
		},
		Sink:    "partner",
		Attempt: 1,
	}
}

func benchmarkServer(b *testing.B) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusAccepted)
	}))
	b.Cleanup(server.Close)
	return server
}

func benchmarkSink(b *testing.B, url, secret string) *Sink {
	sink, err := New(sinks.Instance{}, Config{URL: url, Secret: secret})
	require.NoError(b, err)
	b.Cleanup(func() { _ = sink.Close(b.Context()) })
	return sink
}

// bareLoop is the fastest ordinary use of http.Client: enough connections, a timeout, and the
// response read to its end.
func bareLoop(b *testing.B, url string, payload []byte, header http.Header) func(int) error {
	transport := &http.Transport{MaxIdleConnsPerHost: benchmarkInFlight}
	b.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, Timeout: DefaultTimeout}
	return func(int) error {
		req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, url, bytes.NewReader(payload))
		if err != nil {
			return err
		}
		req.Header = header
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
}

// atOnce answers each request with 200 and no body.
type atOnce struct{}

func (atOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	return &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody, Request: r}, nil
}

// BenchmarkPost measures what a client itself costs: checks, signatures and bookkeeping, without a
// network. The URLs are those of many customers.
//
// Run: go test -run '^$' -bench Post -benchmem ./sinks/httpsink
func BenchmarkPost(b *testing.B) {
	client, err := NewClient(sinks.Instance{HTTPClient: &http.Client{Transport: atOnce{}}}, ClientConfig{})
	require.NoError(b, err)
	urls := make([]string, 1000)
	for i := range urls {
		urls[i] = fmt.Sprintf("https://customer-%d.example/hooks?tenant=%d", i, i)
	}
	for name, p := range map[string]Post{
		"one-secret": {Keys: keysOf(b, vectorSecret)},
		"two-secrets-headers": {
			Keys:   keysOf(b, vectorSecret, newSecret()),
			Header: map[string]string{"Authorization": "Bearer 0123456789", "X-Tenant": "4711"},
		},
	} {
		p.ID, p.Body = notification.NewID(), benchmarkDelivery().Payload
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var next atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for p := p; pb.Next(); {
					p.URL = urls[int(next.Add(1))%len(urls)]
					if _, _, err := client.Post(b.Context(), p); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "posts/s")
		})
	}
}
