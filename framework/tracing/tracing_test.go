package tracing_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/tracing"
)

var span = trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})

func TestLinesWithinASpanCarryItsIDs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(tracing.LogHandler(slog.NewTextHandler(&out, nil))).With("sink", "a")
	log.Info("outside")
	log.InfoContext(trace.ContextWithSpanContext(t.Context(), span), "inside", "n", 1)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 2)
	require.NotContains(t, lines[0], "trace_id")
	require.Contains(t, lines[1], "sink=a n=1 trace_id=01000000000000000000000000000000 span_id=0200000000000000")
	require.False(t, log.Enabled(t.Context(), slog.LevelDebug))
}

func TestConstructorsReturnNilIfTheyChangeNothing(t *testing.T) {
	t.Parallel()
	require.Nil(t, tracing.NewPublishing(nil))
	require.Nil(t, tracing.NewDeliveries(nil, "sink", false))
	require.NotNil(t, tracing.NewDeliveries(nil, "sink", true))
	ctx := t.Context()
	require.Equal(t, ctx, tracing.Detach(ctx))
}

func TestANoopProviderDoesNotChangeTheMetadata(t *testing.T) {
	t.Parallel()
	d := &notification.Delivery{Envelope: &notification.Envelope{ID: "a", Type: "t"}}
	call := tracing.NewDeliveries(noop.NewTracerProvider(), "sink", false).Begin(t.Context(), []*notification.Delivery{d}, d.OccurredOn)
	require.Same(t, d, call.Seen([]*notification.Delivery{d})[0])
	call.End(func(int) error { return context.Canceled })
}

func TestATracestateBelongsToItsTraceparent(t *testing.T) {
	t.Parallel()
	given := notification.Metadata{"tracestate": "vendor=1", "tenant": "acme"}
	got := tracing.Inject(trace.ContextWithSpanContext(t.Context(), span), given)
	require.Equal(t, notification.Metadata{"traceparent": "00-01000000000000000000000000000000-0200000000000000-01", "tenant": "acme"}, got)
	require.Equal(t, notification.Metadata{"tracestate": "vendor=1", "tenant": "acme"}, given, "the envelope is shared")
}

// Metadata may come from any program: no text in it may cause a failure, and the shared envelope
// must not change.
func FuzzContextOfMetadata(f *testing.F) {
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1")
	f.Add("00-00000000000000000000000000000000-b7ad6b7169203331-01", ",,=")
	f.Add("zz", strings.Repeat("a=b,", 100))
	none, off := tracing.NewDeliveries(nil, "sink", true), tracing.NewDeliveries(noop.NewTracerProvider(), "sink", false)
	f.Fuzz(func(t *testing.T, traceparent, tracestate string) {
		d := &notification.Delivery{Envelope: &notification.Envelope{Metadata: notification.Metadata{"traceparent": traceparent, "tracestate": tracestate, "tenant": "acme"}}}
		ctx := trace.ContextWithSpanContext(context.Background(), span)
		hidden := none.Begin(ctx, []*notification.Delivery{d}, d.OccurredOn)
		require.Equal(t, notification.Metadata{"tenant": "acme"}, hidden.Seen([]*notification.Delivery{d})[0].Metadata)
		require.False(t, trace.SpanContextFromContext(hidden.Context).IsValid())
		off.Begin(ctx, []*notification.Delivery{d}, d.OccurredOn).End(func(int) error { return nil })
		require.Equal(t, traceparent, d.Metadata["traceparent"])
	})
}
