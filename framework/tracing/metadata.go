package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-go/waybill/framework/notification"
)

// w3c reads and writes traceparent and tracestate, and never baggage.
var w3c propagation.TraceContext

// Inject returns metadata with the trace context of ctx's span in it, in a copy. Metadata
// that names a traceparent, and a context without a span, leave it as it is.
func Inject(ctx context.Context, m notification.Metadata) notification.Metadata {
	if _, traced := m[notification.MetadataTraceparent]; traced || !trace.SpanContextFromContext(ctx).IsValid() {
		return m
	}
	return replace(ctx, m)
}

// replace returns a copy of metadata that has the trace context of ctx's span, and no other.
func replace(ctx context.Context, m notification.Metadata) notification.Metadata {
	m = m.Clone()
	delete(m, notification.MetadataTracestate) // which goes with another traceparent
	w3c.Inject(ctx, propagation.MapCarrier(m))
	return m
}

// contextOf is the span context that metadata carries; not valid where it carries none.
func contextOf(m notification.Metadata) trace.SpanContext {
	if m.Get(notification.MetadataTraceparent) == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(w3c.Extract(context.Background(), propagation.MapCarrier(m)))
}

// isContext says whether metadata of a name is the trace context, in any case of its letters:
// some formats ignore that.
func isContext(name string) bool {
	return strings.EqualFold(name, notification.MetadataTraceparent) || strings.EqualFold(name, notification.MetadataTracestate)
}

// Detach returns a context in which there is no span.
func Detach(ctx context.Context) context.Context {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return trace.ContextWithSpanContext(ctx, trace.SpanContext{})
}
