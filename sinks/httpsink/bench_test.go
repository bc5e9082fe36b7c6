//go:build unix

package httpsink

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

const benchmarkInFlight = 64

// BenchmarkDeliver compares the sink with net/http alone. They take turns, with the same server,
// payload and number of requests in flight:
//
//   - bare: a loop that posts the payload and discards the response;
//   - bare-headers: the same loop with constant headers like those of the sink;
//   - sink, sink-signed: Deliver.
//
// For each it reports throughput, and throughput per processor time, relative to the bare loop: 1
// is equal. Both are medians of the turns. Processor time is that of this process, including the
// server.
//
// Run: go test -run '^$' -bench Deliver -benchtime 200x ./sinks/httpsink
func BenchmarkDeliver(b *testing.B) {
	d := benchmarkDelivery()
	server := benchmarkServer(b)
	deliver := func(secret string) func() error {
		sink := benchmarkSink(b, server.URL, secret)
		return func() error {
			_, err := sink.Deliver(b.Context(), d)
			return err
		}
	}
	bare := bareLoop(b, server.URL, d.Payload, http.Header{"Content-Type": {"application/json"}})
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"bare-headers", bareLoop(b, server.URL, d.Payload, benchmarkSink(b, server.URL, "").header(d).header)},
		{"sink", deliver("")},
		{"sink-signed", deliver(vectorSecret)},
	} {
		b.Run(c.name, func(b *testing.B) { inTurns(b, bare, c.call) })
	}
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

// inTurns makes benchmarkTurn calls of each in turn.
func inTurns(b *testing.B, bare, other func() error) {
	measure(b, bare) // opens the connections before the measurement
	measure(b, other)
	var wall, processor []float64
	for i := 0; b.Loop(); i++ {
		var one, two cost
		if i%2 == 0 {
			one, two = measure(b, bare), measure(b, other)
		} else {
			two, one = measure(b, other), measure(b, bare)
		}
		wall = append(wall, one.time.Seconds()/two.time.Seconds())
		processor = append(processor, one.processor.Seconds()/two.processor.Seconds())
	}
	b.ReportMetric(median(wall), "of-its-time")
	b.ReportMetric(median(processor), "of-its-processor-time")
	b.ReportMetric(0, "ns/op")
}

const benchmarkTurn = 20 * benchmarkInFlight

// cost is the time of a turn.
type cost struct{ time, processor time.Duration }

// measure splits the calls of a turn among the goroutines.
func measure(b *testing.B, call func() error) cost {
	b.Helper()
	began, used := time.Now(), processorTime(b)
	var left atomic.Int64
	left.Store(benchmarkTurn)
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
	return cost{time.Since(began), processorTime(b) - used}
}

// processorTime is the processor time of this process.
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
