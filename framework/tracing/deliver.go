package tracing

import (
	"context"
	"maps"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// maxLinks bounds the links of a batch's span. It is the default of the SDK.
const maxLinks = 128

// maxDescription bounds the error text in a span's status, in bytes.
const maxDescription = 512

// Deliveries makes a span "deliver" for each call of one sink, and decides which trace context
// the sink sees. It is safe for concurrent use; nil makes no spans and changes nothing.
type Deliveries struct {
	tracer trace.Tracer // nil: no spans
	sink   string
	hidden bool // the sink sees no trace context
}

// NewDeliveries returns nil if provider is nil and hidden is false. A nil provider makes no
// spans. If hidden is true, the sink gets the trace context neither in the metadata nor in its
// context.
func NewDeliveries(provider trace.TracerProvider, sink string, hidden bool) *Deliveries {
	if provider == nil && !hidden {
		return nil
	}
	d := &Deliveries{sink: sink, hidden: hidden}
	if provider != nil {
		d.tracer = tracerOf(provider)
	}
	return d
}

// Call is one call of a sink.
type Call struct {
	// Context is the context for the sink.
	Context context.Context
	// Span is a context with the span, even if the sink does not see it.
	Span context.Context

	n      int        // number of deliveries
	span   trace.Span // nil: no span
	change func(notification.Metadata) notification.Metadata
}

// Begin begins the span of a call that began at the given time. For a single delivery, the
// span's parent is the span context in the metadata, and it also has a link to it. For a batch,
// the span is a new root with a link for each delivery, at most 128.
func (d *Deliveries) Begin(ctx context.Context, deliveries []*notification.Delivery, began time.Time) Call {
	if d.tracer == nil {
		return d.call(ctx, deliveries, nil)
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(began)}
	attributes := []attribute.KeyValue{
		semconv.MessagingSystemKey.String(system),
		semconv.MessagingOperationName("deliver"),
		semconv.MessagingOperationTypeProcess,
		semconv.MessagingDestinationName(d.sink),
		AttributeSink.String(d.sink),
	}
	if name := typeOf(len(deliveries), func(i int) *notification.Envelope { return deliveries[i].Envelope }); name != "" {
		attributes = append(attributes, AttributeType.String(name))
	}
	var links []trace.Link
	for _, one := range deliveries[:min(len(deliveries), maxLinks)] {
		if from := contextOf(one.Metadata); from.IsValid() {
			links = append(links, trace.Link{SpanContext: from, Attributes: []attribute.KeyValue{semconv.MessagingMessageID(one.ID)}})
		}
	}
	parent := trace.SpanContext{}
	if len(deliveries) == 1 {
		one := deliveries[0]
		attributes = append(attributes, semconv.MessagingMessageID(one.ID), semconv.MessagingMessageBodySize(len(one.Payload)), AttributeAttempt.Int(one.Attempt))
		if len(links) > 0 {
			parent = links[0].SpanContext
		}
	} else {
		attributes = append(attributes, semconv.MessagingBatchMessageCount(len(deliveries)))
	}
	options = append(options, trace.WithAttributes(attributes...), trace.WithLinks(links...))
	spanned, span := d.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, parent), "deliver "+d.sink, options...)
	return d.call(spanned, deliveries, span)
}

// Unspanned returns a call without a span.
func (d *Deliveries) Unspanned(ctx context.Context, deliveries []*notification.Delivery) Call {
	return d.call(ctx, deliveries, nil)
}

// call decides what the sink sees.
func (d *Deliveries) call(ctx context.Context, deliveries []*notification.Delivery, span trace.Span) Call {
	c := Call{Context: ctx, Span: ctx, n: len(deliveries), span: span}
	switch {
	case d.hidden:
		c.Context, c.change = Detach(ctx), hide
	case span != nil && len(deliveries) == 1 && span.SpanContext().IsValid():
		c.change = func(m notification.Metadata) notification.Metadata { return replace(ctx, m) }
	}
	return c
}

// Seen returns the deliveries as the sink sees them; changed ones are copies. A single delivery
// has the span's context in its metadata; deliveries of a batch keep their own.
func (c Call) Seen(deliveries []*notification.Delivery) []*notification.Delivery {
	if c.change == nil {
		return deliveries
	}
	seen := make([]*notification.Delivery, len(deliveries))
	for i, one := range deliveries {
		changed, envelope := *one, *one.Envelope // copies, since both are shared
		envelope.Metadata = c.change(envelope.Metadata)
		changed.Envelope = &envelope
		seen[i] = &changed
	}
	return seen
}

// hide returns metadata without the trace context.
func hide(m notification.Metadata) notification.Metadata {
	m = m.Clone()
	maps.DeleteFunc(m, func(name, _ string) bool { return isContext(name) })
	return m
}

// End ends the span of a call, if it has one, with the error of each delivery. If any failed,
// the span's status is an error: its type is the class of the first error, and its description
// the first line of that error's text.
func (c Call) End(failure func(i int) error) {
	if c.span == nil {
		return
	}
	defer c.span.End()
	if !c.span.IsRecording() {
		return
	}
	var first error
	failed := 0
	for i := range c.n {
		if err := failure(i); err != nil {
			if failed++; first == nil {
				first = err
			}
		}
	}
	if first == nil {
		return
	}
	class, _ := sinks.Classify(first)
	c.span.SetStatus(codes.Error, describe(first))
	c.span.SetAttributes(semconv.ErrorTypeKey.String(class.String()))
	if c.n > 1 {
		c.span.SetAttributes(AttributeFailed.Int(failed))
	}
}

// describe returns the first line of an error's text, without the destination's answer.
func describe(err error) string {
	line, _, _ := strings.Cut(sinks.Brief(err), "\n")
	return strings.ToValidUTF8(line[:min(len(line), maxDescription)], "")
}
