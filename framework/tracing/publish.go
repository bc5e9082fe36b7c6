package tracing

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-go/waybill/framework/notification"
)

// Publishing makes a span "publish" for each call that publishes: of kind producer, since its
// context goes into the metadata of all notifications of the call. It is safe for concurrent
// use; nil makes none.
type Publishing struct{ tracer trace.Tracer }

// NewPublishing returns nil without a provider.
func NewPublishing(provider trace.TracerProvider) *Publishing {
	if provider == nil {
		return nil
	}
	return &Publishing{tracerOf(provider)}
}

// Publish is the span of one call.
type Publish struct{ span trace.Span }

// Begin begins the span of a call, which is in the context that it returns.
func (p *Publishing) Begin(ctx context.Context) (context.Context, Publish) {
	ctx, span := p.tracer.Start(ctx, "publish", trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		semconv.MessagingSystemKey.String(system),
		semconv.MessagingOperationName("publish"),
		semconv.MessagingOperationTypeSend,
	))
	return ctx, Publish{span}
}

// End ends the span: with what was published, as far as it was made, and the class of the
// call's error, "" where there is none. The error's text is the caller's to show.
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

// typeOf is the type of n envelopes; "" where there are several.
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
