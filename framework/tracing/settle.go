package tracing

import (
	"context"
	"time"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Settling makes a client span "settle SINK" for each checkpoint. It is the root of a new trace,
// since a checkpoint settles deliveries of many traces. It is safe for concurrent use; nil
// makes no spans.
type Settling struct{ tracer trace.Tracer }

// NewSettling returns nil if provider is nil.
func NewSettling(provider trace.TracerProvider) *Settling {
	if provider == nil {
		return nil
	}
	return &Settling{tracerOf(provider)}
}

// Settled makes the span of a checkpoint that settled n deliveries.
func (s *Settling) Settled(sink string, n int, began time.Time, took time.Duration) {
	if s == nil || n == 0 {
		return
	}
	_, span := s.tracer.Start(context.Background(), "settle "+sink, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(began), trace.WithAttributes(
		semconv.MessagingSystemKey.String(system),
		semconv.MessagingOperationName("settle"),
		semconv.MessagingOperationTypeSettle,
		semconv.MessagingDestinationName(sink),
		semconv.MessagingBatchMessageCount(n),
		AttributeSink.String(sink),
	))
	span.End(trace.WithTimestamp(began.Add(took)))
}
