package program

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
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

func TestOneEndpointGetsTracesAndMetricsUnlessOneIsSwitchedOff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		environ         []string
		traces, metrics bool
	}{
		"both":                  {nil, true, true},
		"only traces":           {[]string{"OTEL_METRICS_EXPORTER=none"}, true, false},
		"only metrics":          {[]string{"OTEL_TRACES_EXPORTER=none"}, false, true},
		"neither":               {[]string{"OTEL_METRICS_EXPORTER=none", "OTEL_TRACES_EXPORTER=none"}, false, false},
		"unsupported exporters": {[]string{"OTEL_METRICS_EXPORTER=prometheus", "OTEL_TRACES_EXPORTER=zipkin"}, false, false},
		"neither, by the SDK":   {[]string{"OTEL_SDK_DISABLED=true"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := databases["sqlite"](t)
			o.migrate(t)
			o.publish(t, 1, 1)
			destination, metrics, spans := newReceiver(t), newMetricsCollector(t), newSpanCollector(t)
			both := http.NewServeMux()
			both.Handle("/v1/metrics", metrics.Config.Handler)
			both.Handle("/v1/traces", spans.Config.Handler)
			collector := httptest.NewServer(both)
			defer collector.Close()
			f := startIn(t, append(c.environ, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL), "forward", "-c", o.config(t, "15s", destination.URL))
			destination.await(t, 1)
			f.signal(t, syscall.SIGTERM)
			require.Zero(t, f.wait())
			require.Equal(t, c.traces, len(spans.spans) == 1)
			require.Equal(t, c.metrics, metrics.delivered() == 1)
			require.Equal(t, c.metrics, metrics.headers != nil, "otherwise nothing is sent")
		})
	}
}

func TestTheLastMetricsAreSentAtTheEnd(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.migrate(t)
	o.publish(t, 1, 3)
	destination, c := newReceiver(t), newMetricsCollector(t)
	f := startIn(t, []string{"OTEL_METRICS_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_METRIC_EXPORT_INTERVAL=3600000"},
		"forward", "-c", o.config(t, "15s", destination.URL))
	destination.await(t, 3)
	f.signal(t, syscall.SIGTERM)
	require.Zero(t, f.wait())
	require.Equal(t, 3.0, c.delivered())
}

func TestAHangingCollectorOfMetricsDelaysNothing(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.migrate(t)
	asked, done := make(chan struct{}), make(chan struct{})
	var once sync.Once
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		once.Do(func() { close(asked) })
		<-done
	}))
	defer hanging.Close()
	defer close(done)
	destination := newReceiver(t)
	f := startIn(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + hanging.URL, "OTEL_TRACES_EXPORTER=none", "OTEL_METRIC_EXPORT_INTERVAL=10"},
		"forward", "-c", o.config(t, "15s", destination.URL))
	<-asked
	o.publish(t, 1, 3)
	destination.await(t, 3)
	began := time.Now()
	f.signal(t, syscall.SIGTERM)
	require.Zero(t, f.wait())
	require.Less(t, time.Since(began), 15*time.Second, "3 s, on a busy machine")
}

func TestACollectorOfMetricsThatStartsLaterIsLoggedOnce(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.migrate(t)
	c := newMetricsCollector(t)
	handler := c.Config.Handler
	var mu sync.Mutex
	refused := 0
	c.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		refused++
		refuse := refused <= 3
		mu.Unlock()
		if refuse {
			w.WriteHeader(http.StatusForbidden) // the exporter does not retry this
			return
		}
		handler.ServeHTTP(w, r)
	})
	f := startIn(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_TRACES_EXPORTER=none", "OTEL_METRIC_EXPORT_INTERVAL=20"},
		"forward", "-c", o.config(t, "15s", "http://127.0.0.1:1"))
	failed := 0
	for line := range f.lines {
		if strings.Contains(line, "sending metrics failed, trying again") {
			failed++
		}
		if strings.Contains(line, "sending metrics works again") {
			break
		}
	}
	require.Equal(t, 1, failed)
	f.signal(t, syscall.SIGTERM)
	require.Zero(t, f.wait())
}

func TestAnEndpointForMetricsThatIsNotAURLIsWrongUsage(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.migrate(t)
	f := startIn(t, []string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=user:secret@collector"}, "forward", "-c", o.config(t, "15s", "http://127.0.0.1:1"))
	var all string
	for line := range f.lines {
		all += line + "\n"
	}
	require.Equal(t, exitUsage, f.wait())
	require.Contains(t, all, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is not a URL such as http://localhost:4318")
	require.NotContains(t, all, "secret")
}
