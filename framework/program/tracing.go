package program

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/waybill-go/waybill/framework/program/internal/otlp"
)

// flushTimeout bounds how long the end of the program waits for the last spans to be sent.
const flushTimeout = 3 * time.Second

// logSDK has what the SDK complains of go to the log, for spans and metrics. It is the same for all of
// the process.
func (f *forward) logSDK() {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { f.logger.Warn("OpenTelemetry", "error", err) }))
	otel.SetLogger(otelLogger(f.logger))
}

// traced makes the provider of spans. The function sends the last spans and ends it.
func (f *forward) traced(ctx context.Context) (end func(), err error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	who, err := f.service.Resource(ctx)
	if err != nil { // a part of it
		f.logger.Warn("tracing", "error", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(otlp.NewSpans(exporter, f.logger), f.queue()...), sdk.WithResource(who))
	f.options.TracerProvider = provider
	f.logger.Info("tracing is on")
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			f.logger.Warn("the last spans were not sent", "error", err)
			_ = exporter.Shutdown(ctx) // ends what is under way
		}
	}, nil
}

// queue is how spans wait for the exporter. The SDK would panic, or spin, on some numbers.
func (f *forward) queue() []sdk.BatchSpanProcessorOption {
	size := f.number("OTEL_BSP_MAX_QUEUE_SIZE", sdk.DefaultMaxQueueSize)
	return []sdk.BatchSpanProcessorOption{
		sdk.WithMaxQueueSize(size),
		sdk.WithMaxExportBatchSize(min(size, f.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", sdk.DefaultMaxExportBatchSize))),
		sdk.WithBatchTimeout(time.Duration(f.number("OTEL_BSP_SCHEDULE_DELAY", sdk.DefaultScheduleDelay)) * time.Millisecond),
	}
}

// number is a variable above 0, in spans or milliseconds, or its default with a warning.
func (f *forward) number(variable string, standard int) int {
	const most = 1 << 24 // more is a slip
	text := otlp.Variable(f.environ, variable)
	if text == "" {
		return standard
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		f.logger.Warn(fmt.Sprintf("%s is no number from 1 to %d: its default counts", variable, most), "value", text, "default", standard)
		return standard
	}
	return n
}

// otelLogger hands on what the SDK complains of, such as a variable that makes no sense, and
// leaves out what it quotes: that may be a secret.
func otelLogger(log *slog.Logger) logr.Logger { return logr.New(complaints{log}) }

type complaints struct{ log *slog.Logger }

func (complaints) Init(logr.RuntimeInfo)            {}
func (complaints) Enabled(int) bool                 { return false }
func (complaints) Info(int, string, ...any)         {}
func (c complaints) WithValues(...any) logr.LogSink { return c }
func (c complaints) WithName(string) logr.LogSink   { return c }
func (c complaints) Error(err error, message string, _ ...any) {
	c.log.Warn("OpenTelemetry: "+message, "error", err)
}
