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

// flushTimeout limits how long the program waits for the last spans to be sent when it ends.
const flushTimeout = 3 * time.Second

// logSDK sends errors of the OpenTelemetry SDK to the log. It applies to the whole process.
func (f *forward) logSDK() {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { f.Logger.Warn("OpenTelemetry", "error", err) }))
	otel.SetLogger(otelLogger(f.Logger))
}

// traced turns tracing on. end sends the last spans and turns it off.
func (f *forward) traced(ctx context.Context) (end func(), err error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	who, err := f.service.Resource(ctx)
	if err != nil { // part of the resource is missing
		f.Logger.Warn("tracing", "error", err)
	}
	provider := sdk.NewTracerProvider(sdk.WithBatcher(otlp.NewSpans(exporter, f.Logger), f.queue()...), sdk.WithResource(who))
	f.Options.TracerProvider = provider
	f.Logger.Info("tracing is on")
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			f.Logger.Warn("the last spans were not sent", "error", err)
			_ = exporter.Shutdown(ctx) // cancels the upload that is running
		}
	}, nil
}

// queue returns the options of the queue of spans. The SDK would panic or spin on some values
// of the variables, so they are checked here.
func (f *forward) queue() []sdk.BatchSpanProcessorOption {
	size := f.number("OTEL_BSP_MAX_QUEUE_SIZE", sdk.DefaultMaxQueueSize)
	return []sdk.BatchSpanProcessorOption{
		sdk.WithMaxQueueSize(size),
		sdk.WithMaxExportBatchSize(min(size, f.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", sdk.DefaultMaxExportBatchSize))),
		sdk.WithBatchTimeout(time.Duration(f.number("OTEL_BSP_SCHEDULE_DELAY", sdk.DefaultScheduleDelay)) * time.Millisecond),
	}
}

// number returns the value of a variable, in spans or milliseconds. If it is not a number above
// 0, it logs a warning and returns the default.
func (f *forward) number(variable string, standard int) int {
	const most = 1 << 24 // more must be a typing error
	text := otlp.Variable(f.Environ, variable)
	if text == "" {
		return standard
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		f.Logger.Warn(fmt.Sprintf("%s is not a number from 1 to %d: using its default", variable, most), "value", text, "default", standard)
		return standard
	}
	return n
}

// otelLogger logs errors of the SDK, such as an invalid variable, without the values that they
// quote, which may be secret.
func otelLogger(log *slog.Logger) logr.Logger { return logr.New(sdkErrors{log}) }

type sdkErrors struct{ log *slog.Logger }

func (sdkErrors) Init(logr.RuntimeInfo)            {}
func (sdkErrors) Enabled(int) bool                 { return false }
func (sdkErrors) Info(int, string, ...any)         {}
func (c sdkErrors) WithValues(...any) logr.LogSink { return c }
func (c sdkErrors) WithName(string) logr.LogSink   { return c }
func (c sdkErrors) Error(err error, message string, _ ...any) {
	c.log.Warn("OpenTelemetry: "+message, "error", err)
}
