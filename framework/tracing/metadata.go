package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-go/waybill/framework/notification"
)

// w3c reads and writes traceparent and tracestate, but not baggage.
var w3c propagation.TraceContext

// Inject returns a copy of the metadata with the trace context of ctx's span. It returns the
// metadata unchanged if that already has a traceparent, or if ctx has no span.
func Inject(ctx context.Context, m notification.Metadata) notification.Metadata {
	if _, traced := m[notification.MetadataTraceparent]; traced || !trace.SpanContextFromContext(ctx).IsValid() {
		return m
	}
	return replace(ctx, m)
}

// replace returns a copy of the metadata with the trace context of ctx's span and no other.
func replace(ctx context.Context, m notification.Metadata) notification.Metadata {
	m = m.Clone()
	delete(m, notification.MetadataTracestate) // belongs to the old traceparent
	w3c.Inject(ctx, propagation.MapCarrier(m))
	return m
}

// contextOf returns the span context in metadata; it is not valid if there is none.
func contextOf(m notification.Metadata) trace.SpanContext {
	if m.Get(notification.MetadataTraceparent) == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(w3c.Extract(context.Background(), propagation.MapCarrier(m)))
}

// isContext reports whether metadata with this name is the trace context. It ignores case, as
// some formats do.
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
