package program

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	wire "go.opentelemetry.io/proto/otlp/metrics/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/proto"
)

// otlpServer is an OpenTelemetry collector of one signal, for OTLP over HTTP.
type otlpServer struct {
	*httptest.Server

	mu       sync.Mutex
	resource map[string]string
	headers  http.Header
}

// newOTLPServer returns a server that decodes each request into request and calls take with its lock held.
func newOTLPServer(t testing.TB, path string, request proto.Message, take func()) *otlpServer {
	t.Helper()
	s := &otlpServer{resource: make(map[string]string)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil || r.URL.Path != path || proto.Unmarshal(body, request) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		s.headers = r.Header
		take()
	}))
	t.Cleanup(s.Close)
	return s
}

// describe stores the attributes of the sender.
func (s *otlpServer) describe(r *resource.Resource) {
	for _, a := range r.GetAttributes() {
		s.resource[a.Key] = a.Value.GetStringValue()
	}
}

// metricsCollector keeps the last metrics with each name.
type metricsCollector struct {
	*otlpServer
	metrics map[string]*wire.Metric
}

func newMetricsCollector(t testing.TB) *metricsCollector {
	t.Helper()
	c := &metricsCollector{metrics: make(map[string]*wire.Metric)}
	var request collector.ExportMetricsServiceRequest
	c.otlpServer = newOTLPServer(t, "/v1/metrics", &request, func() {
		clear(c.metrics)
		for _, of := range request.ResourceMetrics {
			c.describe(of.Resource)
			for _, scope := range of.ScopeMetrics {
				for _, m := range scope.Metrics {
					c.metrics[m.Name] = m
				}
			}
		}
	})
	return c
}

// delivered returns the number of successful attempts at the sink partner.
func (c *metricsCollector) delivered() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.metrics["waybill_attempts_total"].GetSum().GetDataPoints() {
		labels := make(map[string]string)
		for _, a := range p.Attributes {
			labels[a.Key] = a.Value.GetStringValue()
		}
		if labels["sink"] == "partner" && labels["result"] == "delivered" {
			return p.GetAsDouble()
		}
	}
	return -1
}

func TestMetricsAreSentToACollector(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		o.publish(t, 1, 3)
		destination, c := newReceiver(t), newMetricsCollector(t)
		f := startIn(t, []string{
			"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=" + c.URL + "/v1/metrics", "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20abc",
			"OTEL_SERVICE_NAME=shop-outbox", "OTEL_METRIC_EXPORT_INTERVAL=50",
		}, "forward", "-c", o.config(t, "15s", destination.URL))
		destination.await(t, 3)
		require.Eventually(t, func() bool { return c.delivered() == 3 }, patience, 10*time.Millisecond)
		f.signal(t, syscall.SIGTERM)
		require.Zero(t, f.wait())
		require.Equal(t, "shop-outbox", c.resource["service.name"])
		require.NotEmpty(t, c.resource["service.instance.id"])
		require.NotEmpty(t, c.resource["service.version"])
		require.Equal(t, "Bearer abc", c.headers.Get("Authorization"))
		require.EqualValues(t, 3, sumOf(c.metrics["waybill_delivery_duration_seconds"]))
		require.NotEmpty(t, c.metrics["waybill_sample_timestamp_seconds"].GetGauge().GetDataPoints(), "the program collects samples without observe.address")
	})
}

// sumOf returns the number of values in a histogram.
func sumOf(m *wire.Metric) (n uint64) {
	for _, p := range m.GetExponentialHistogram().GetDataPoints() {
		n += p.Count
	}
	return n
}

func TestOneEndpointGetsTracesAndMetricsAtTheEnd(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.migrate(t)
	var metrics *metricsCollector
	var spans *spanCollector
	for n, late := 1, true; late && n <= 3; n++ {
		o.publish(t, n, n)
		destination := newReceiver(t)
		metrics, spans = newMetricsCollector(t), newSpanCollector(t)
		both := http.NewServeMux()
		both.Handle("/v1/metrics", metrics.Config.Handler)
		both.Handle("/v1/traces", spans.Config.Handler)
		collector := httptest.NewServer(both)
		defer collector.Close()
		f := startIn(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_METRIC_EXPORT_INTERVAL=3600000"}, "forward", "-c", o.config(t, "15s", destination.URL))
		destination.await(t, 1)
		late = f.endsLate(t)
	}
	require.Len(t, spans.spans, 1)
	require.Equal(t, 1.0, metrics.delivered())
}

func TestAHangingCollectorDelaysNothing(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.migrate(t)
	done := make(chan struct{})
	asked := make(chan string, 1000)
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		<-done
	}))
	defer hanging.Close()
	defer close(done)
	const most = 2*flushTimeout + 10*time.Second
	for n, took := 1, most; took >= most; n++ {
		require.LessOrEqual(t, n, 3, "it took %s", took)
		destination := newReceiver(t)
		f := startIn(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + hanging.URL, "OTEL_METRIC_EXPORT_INTERVAL=10", "OTEL_BSP_SCHEDULE_DELAY=1", "OTEL_BSP_MAX_QUEUE_SIZE=10"},
			"forward", "-c", o.config(t, "15s", destination.URL))
		o.publish(t, 1, 1)
		for metrics, spans := false, false; !metrics || !spans; {
			path := <-asked
			metrics, spans = metrics || path == "/v1/metrics", spans || path == "/v1/traces"
		}
		o.publish(t, 2, 500)
		destination.await(t, 500)
		began := time.Now()
		f.signal(t, syscall.SIGTERM)
		f.awaitLine(t, "the last spans were not sent")
		require.Zero(t, f.wait())
		took = time.Since(began) // more on a machine that stalls
	}
}

func TestACollectorThatStartsLaterIsLoggedOnce(t *testing.T) {
	t.Parallel()
	for what, environ := range map[string][]string{
		"metrics": {"OTEL_TRACES_EXPORTER=none", "OTEL_METRIC_EXPORT_INTERVAL=20"},
		"spans":   {"OTEL_METRICS_EXPORTER=none", "OTEL_BSP_SCHEDULE_DELAY=1"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			o := databases["sqlite"](t)
			o.migrate(t)
			refused := make(chan struct{}, 1000)
			var works atomic.Bool
			c := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if !works.Load() {
					w.WriteHeader(http.StatusForbidden) // the exporter does not retry this
					refused <- struct{}{}
				}
			}))
			defer c.Close()
			destination := newReceiver(t)
			f := startIn(t, append(environ, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.URL), "forward", "-c", o.config(t, "15s", destination.URL))
			for n := range 3 {
				o.publish(t, n+1, n+1)
				<-refused
			}
			works.Store(true)
			o.publish(t, 4, 4)
			failed := 0
			for line := range f.lines {
				require.NotContains(t, line, "msg=tracing")
				if strings.Contains(line, "sending "+what+" failed, trying again") {
					failed++
				}
				if strings.Contains(line, "sending "+what+" works again") {
					break
				}
			}
			require.Equal(t, 1, failed)
			f.signal(t, syscall.SIGTERM)
			require.Zero(t, f.wait())
		})
	}
}
