package program

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

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
		var spans *spanCollector
		for n, late := 1, true; late && n <= 3; n++ {
			o.insertTraced(t, "00-"+publishedTrace+"-"+publishedSpan+"-01")
			destination := newReceiver(t)
			spans = newSpanCollector(t)
			f := startIn(t, []string{
				"OTEL_EXPORTER_OTLP_ENDPOINT=" + spans.URL, "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20abc",
				"OTEL_SERVICE_NAME=shop-outbox", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test",
				"OTEL_BSP_SCHEDULE_DELAY=3600000", // so that only the end of the program sends spans
			}, "forward", "-c", o.config(t, "15s", destination.URL))
			destination.await(t, 1)
			late = f.endsLate(t)
		}

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

// endsLate ends the program, and reports whether time ran out before all was sent, as on a machine that stalls.
func (p *running) endsLate(t testing.TB) (late bool) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	for line := range p.lines {
		late = late || strings.Contains(line, "deadline exceeded")
	}
	require.Zero(t, p.wait())
	return late
}

func TestWrongVariablesOfTracing(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.migrate(t)
	config := o.config(t, "15s", "http://127.0.0.1:1")
	for _, signal := range []string{"TRACES", "METRICS"} {
		r := waybillWith(t, []string{"OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT=http://u:geheim@h:x"}, "forward", "-c", config)
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.stderr, "OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT is not a URL such as http://localhost:4318")
		require.NotContains(t, r.stderr, "geheim")
	}
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
