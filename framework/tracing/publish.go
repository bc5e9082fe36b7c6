package tracing

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-go/waybill/framework/notification"
)

// Publishing makes a producer span "publish" for each call that publishes. Its context goes
// into the metadata of all notifications of the call. It is safe for concurrent use; nil makes
// no spans.
type Publishing struct{ tracer trace.Tracer }

// NewPublishing returns nil if provider is nil.
func NewPublishing(provider trace.TracerProvider) *Publishing {
	if provider == nil {
		return nil
	}
	return &Publishing{tracerOf(provider)}
}

// Publish is the span of one call.
type Publish struct{ span trace.Span }

// Begin begins the span of a call and returns a context with it.
func (p *Publishing) Begin(ctx context.Context) (context.Context, Publish) {
	ctx, span := p.tracer.Start(ctx, "publish", trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		semconv.MessagingSystemKey.String(system),
		semconv.MessagingOperationName("publish"),
		semconv.MessagingOperationTypeSend,
	))
	return ctx, Publish{span}
}

// End ends the span, with the notifications that were published and the type of the call's
// error, "" if it succeeded. It does not record the error's text.
func (p Publish) End(envelopes []notification.Envelope, errorType string) {
	defer p.span.End()
	if !p.span.IsRecording() {
		return
	}
	if errorType != "" {
		p.span.SetStatus(codes.Error, "")
		p.span.SetAttributes(semconv.ErrorTypeKey.String(errorType))
	}
	if name := typeOf(len(envelopes), func(i int) *notification.Envelope { return &envelopes[i] }); name != "" {
		p.span.SetName("publish " + name)
		p.span.SetAttributes(semconv.MessagingDestinationName(name), AttributeType.String(name))
	}
	switch n := len(envelopes); n {
	case 0:
	case 1:
		p.span.SetAttributes(semconv.MessagingMessageID(envelopes[0].ID), semconv.MessagingMessageBodySize(len(envelopes[0].Payload)))
	default:
		p.span.SetAttributes(semconv.MessagingBatchMessageCount(n))
	}
}

// typeOf returns the common type of n envelopes, or "" if they have several.
func typeOf(n int, envelope func(i int) *notification.Envelope) string {
	if n == 0 {
		return ""
	}
	for i := 1; i < n; i++ {
		if envelope(i).Type != envelope(0).Type {
			return ""
		}
	}
	return envelope(0).Type
}
