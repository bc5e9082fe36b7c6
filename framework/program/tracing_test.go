package program

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	wire "go.opentelemetry.io/proto/otlp/trace/v1"
)

// spanCollector keeps the spans that it receives.
type spanCollector struct {
	*otlpServer
	spans []*wire.Span
}

func newSpanCollector(t testing.TB) *spanCollector {
	t.Helper()
	c := &spanCollector{}
	var request collector.ExportTraceServiceRequest
	c.otlpServer = newOTLPServer(t, "/v1/traces", &request, func() {
		for _, of := range request.ResourceSpans {
			c.describe(of.Resource)
			for _, scope := range of.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	})
	return c
}

// insertTraced inserts a notification of a trace.
func (o outbox) insertTraced(t testing.TB, traceparent string) {
	t.Helper()
	_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (type, metadata, payload) VALUES ('order.placed', $1, '{"n":1}')`, `{"traceparent":"`+traceparent+`"}`)
	require.NoError(t, err)
}

const (
	publishedTrace = "0af7651916cd43dd8448eb211c80319c"
	publishedSpan  = "b7ad6b7169203331"
)

func TestTheProgramSendsItsSpansToACollector(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		o.insertTraced(t, "00-"+publishedTrace+"-"+publishedSpan+"-01")
		destination, spans := newReceiver(t), newSpanCollector(t)
		f := startIn(t, []string{
			"OTEL_EXPORTER_OTLP_ENDPOINT=" + spans.URL, "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20abc",
			"OTEL_SERVICE_NAME=shop-outbox", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test",
			"OTEL_BSP_SCHEDULE_DELAY=3600000", // so that only the end of the program sends spans
		}, "forward", "-c", o.config(t, "15s", destination.URL))
		destination.await(t, 1)
		f.signal(t, syscall.SIGTERM)
		require.Zero(t, f.wait())

		require.Len(t, spans.spans, 1)
		s := spans.spans[0]
		require.Equal(t, "deliver partner", s.Name)
		require.Equal(t, wire.Span_SPAN_KIND_CONSUMER, s.Kind)
		require.Equal(t, publishedTrace, fmt.Sprintf("%x", s.TraceId))
		require.Equal(t, publishedSpan, fmt.Sprintf("%x", s.ParentSpanId))
		require.Equal(t, "shop-outbox", spans.resource["service.name"])
		require.Equal(t, "test", spans.resource["deployment.environment.name"])
		require.NotEmpty(t, spans.resource["service.version"])
		require.NotEmpty(t, spans.resource["service.instance.id"])
		require.Equal(t, "Bearer abc", spans.headers.Get("Authorization"))
	})
}

func TestAHangingCollectorDelaysNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
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
		f := startIn(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + hanging.URL, "OTEL_BSP_SCHEDULE_DELAY=1", "OTEL_BSP_MAX_QUEUE_SIZE=10"},
			"forward", "-c", o.config(t, "15s", destination.URL))
		o.publish(t, 1, 1)
		<-asked
		o.publish(t, 2, 500)
		destination.await(t, 500)
		began := time.Now()
		f.signal(t, syscall.SIGTERM)
		f.awaitLine(t, "the last spans were not sent")
		require.Zero(t, f.wait())
		require.Less(t, time.Since(began), flushTimeout+10*time.Second)
	})
}

func TestACollectorOfSpansThatStartsLaterIsLoggedOnce(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.migrate(t)
	refused := make(chan struct{}, 100)
	works := make(chan struct{})
	c := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-works:
		default:
			w.WriteHeader(http.StatusForbidden) // the exporter does not retry this
			refused <- struct{}{}
		}
	}))
	defer c.Close()
	destination := newReceiver(t)
	f := startIn(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_METRICS_EXPORTER=none", "OTEL_BSP_SCHEDULE_DELAY=1"},
		"forward", "-c", o.config(t, "15s", destination.URL))
	for n := range 3 {
		o.publish(t, n+1, n+1)
		<-refused
	}
	close(works)
	o.publish(t, 4, 4)
	failed := 0
	for line := range f.lines {
		if strings.Contains(line, "sending spans failed, trying again") {
			failed++
		}
		require.NotContains(t, line, "msg=tracing")
		if strings.Contains(line, "sending spans works again") {
			break
		}
	}
	require.Equal(t, 1, failed)
	f.signal(t, syscall.SIGTERM)
	require.Zero(t, f.wait())
}

func TestTracingIsOffByDefault(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.migrate(t)
	spans := newSpanCollector(t)
	for name, environ := range map[string][]string{
		"nothing":  {"OTEL_SERVICE_NAME=shop"},
		"disabled": {"OTEL_SDK_DISABLED=TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT=" + spans.URL},
		"none":     {"OTEL_TRACES_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT=" + spans.URL},
	} {
		t.Run(name, func(t *testing.T) {
			f := startIn(t, environ, "forward", "-c", o.config(t, "15s", "http://127.0.0.1:1"))
			for line := range f.lines {
				require.NotContains(t, line, "tracing")
				if strings.Contains(line, "forwarding") {
					break
				}
			}
			f.signal(t, syscall.SIGTERM)
			require.Zero(t, f.wait())
		})
	}
	require.Empty(t, spans.headers)
}

func TestWrongVariablesOfTracing(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.migrate(t)
	config := o.config(t, "15s", "http://127.0.0.1:1")
	r := waybillWith(t, []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://u:geheim@h:x"}, "forward", "-c", config)
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.stderr, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is not a URL")
	require.NotContains(t, r.stderr, "geheim")
	for _, c := range []struct {
		environ []string
		want    string
	}{
		{[]string{"OTEL_TRACES_EXPORTER=zipkin"}, "OTEL_TRACES_EXPORTER names an unknown exporter"},
		{[]string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_TRACES_SAMPLER=coin"}, "unsupported sampler: coin"},
		{[]string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=7"}, "greater than 1.0"},
		{[]string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_RESOURCE_ATTRIBUTES=nonsense"}, "missing value"},
		{[]string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_HEADERS=geheim"}, "parse headers"},
		{[]string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_TIMEOUT=soon"}, "parse duration"},
		{[]string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_BSP_MAX_QUEUE_SIZE=-1"}, "OTEL_BSP_MAX_QUEUE_SIZE is not a number from 1"},
		{[]string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=-1"}, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE is not a number from 1"},
		{[]string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_BSP_SCHEDULE_DELAY=0"}, "OTEL_BSP_SCHEDULE_DELAY is not a number from 1"},
	} {
		f := startIn(t, c.environ, "forward", "-c", config)
		warned := false
		for line := range f.lines {
			require.NotContains(t, line, "geheim")
			require.Contains(t, line, "level=", "all goes through the logger")
			warned = warned || strings.Contains(line, "level=WARN") && strings.Contains(line, c.want)
			if strings.Contains(line, "msg=forwarding") {
				break
			}
		}
		require.True(t, warned, c.want)
		f.signal(t, syscall.SIGTERM)
		require.Zero(t, f.wait())
	}
}
