package httpsink

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

const benchmarkInFlight = 64

// BenchmarkDeliver compares the sink with what net/http does on its own, with
// the same server, payload and number in flight:
//
//   - bare: a loop that posts the payload and reads the response away;
//   - bare-headers: the same loop with the headers that the sink writes, fixed;
//   - sink, sink-signed: Deliver;
//   - sink-against-bare: both by turns, so that whatever else the machine does
//     meets both; it reports the sink's throughput as a share of the bare loop's.
//
// Run: go test -run '^$' -bench Deliver -benchtime 100000x -count 5 ./sinks/httpsink
func BenchmarkDeliver(b *testing.B) {
	d := benchmarkDelivery()
	b.Run("bare", func(b *testing.B) {
		server := benchmarkServer(b)
		post := bareLoop(b, server.URL, d.Payload, http.Header{"Content-Type": {"application/json"}})
		inFlight(b, post)
	})
	b.Run("bare-headers", func(b *testing.B) {
		server := benchmarkServer(b)
		post := bareLoop(b, server.URL, d.Payload, benchmarkSink(b, server.URL, "").header(d).header)
		inFlight(b, post)
	})
	for _, c := range []struct{ name, secret string }{{"sink", ""}, {"sink-signed", vectorSecret}} {
		b.Run(c.name, func(b *testing.B) {
			sink := benchmarkSink(b, benchmarkServer(b).URL, c.secret)
			inFlight(b, func() error {
				_, err := sink.Deliver(b.Context(), d)
				return err
			})
		})
	}
	b.Run("sink-against-bare", func(b *testing.B) {
		server := benchmarkServer(b)
		post := bareLoop(b, server.URL, d.Payload, http.Header{"Content-Type": {"application/json"}})
		sink := benchmarkSink(b, server.URL, "")
		deliver := func() error {
			_, err := sink.Deliver(b.Context(), d)
			return err
		}
		inTurns(b, post, deliver)
	})
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

// bareLoop is the fastest ordinary use of http.Client: connections enough, a
// timeout, the response read to its end.
func bareLoop(b *testing.B, url string, payload []byte, header http.Header) func() error {
	transport := &http.Transport{MaxIdleConnsPerHost: benchmarkInFlight}
	b.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, Timeout: DefaultTimeout}
	return func() error {
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

// inFlight measures b.N calls.
func inFlight(b *testing.B, call func() error) {
	share(b, call, 10*benchmarkInFlight) // connections stand before the clock runs
	b.ReportAllocs()
	b.ResetTimer()
	share(b, call, b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
}

// inTurns makes b.N calls of each, a thousand of one and a thousand of the
// other, and reports how fast the second is in parts of the first: the median
// over all turns.
func inTurns(b *testing.B, bare, sink func() error) {
	share(b, bare, 10*benchmarkInFlight)
	share(b, sink, 10*benchmarkInFlight)
	var ratios []float64
	b.ResetTimer()
	for left := b.N; left > 0; left -= 1000 {
		n := min(left, 1000)
		ratios = append(ratios, float64(share(b, bare, n))/float64(share(b, sink, n)))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "sink/bare")
}

// share splits n calls among the goroutines and returns how long they took.
func share(b *testing.B, call func() error, n int) time.Duration {
	started := time.Now()
	var left atomic.Int64
	left.Store(int64(n))
	var workers errgroup.Group
	for range benchmarkInFlight {
		workers.Go(func() error {
			for left.Add(-1) >= 0 {
				if err := call(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, workers.Wait())
	return time.Since(started)
}
