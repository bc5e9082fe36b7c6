package tracing

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// Names of what a log line within a span carries.
const (
	LogTraceID = "trace_id"
	LogSpanID  = "span_id"
)

// LogHandler adds the ids of the trace and the span to the lines that are logged with a
// context that has a span, such as by [slog.Logger.InfoContext], and hands all on to another
// handler.
func LogHandler(to slog.Handler) slog.Handler { return logHandler{to} }

type logHandler struct{ slog.Handler }

// Handle implements slog.Handler.
func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if ctx == nil {
		return h.Handler.Handle(ctx, r)
	}
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r = r.Clone() // whose attributes may be shared
		r.AddAttrs(slog.String(LogTraceID, span.TraceID().String()), slog.String(LogSpanID, span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.Handler.WithGroup(name)}
}
