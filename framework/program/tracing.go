package program

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/waybill-go/waybill/framework/program/internal/otlp"
)

// flushTimeout bounds how long the end of the program waits for the last spans to be sent.
const flushTimeout = 3 * time.Second

// Standard variables that switch tracing on and off. The others are read by the SDK: the
// exporter's headers, certificates and timeouts, the sampler, the resource.
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_TRACES_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envTracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
)

// traced makes the provider of spans, if the standard variables ask for one. The function
// sends the last spans and ends it.
func (f *forward) traced(ctx context.Context) (end func(), err error) {
	// What goes wrong is the same for all of the process, and for metrics too.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { f.logger.Warn("OpenTelemetry", "error", err) }))
	otel.SetLogger(otelLogger(f.logger))
	on, err := f.tracingIsOn()
	if err != nil || !on {
		return func() {}, err
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	who, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName(f.name), semconv.ServiceVersion(readBuild(f.name).Version)),
		resource.WithFromEnv(),
	)
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

// tracingIsOn reads the variables that say so. An endpoint that cannot be used is a mistake;
// where the standard has a fallback, that counts, with a warning.
func (f *forward) tracingIsOn() (bool, error) {
	disabled := f.variable(envDisabled)
	if disabled != "" && !strings.EqualFold(disabled, "true") && !strings.EqualFold(disabled, "false") {
		f.logger.Warn(envDisabled+" is neither true nor false: it counts as false", "value", disabled)
	}
	exporter := f.variable(envExporter)
	if strings.EqualFold(disabled, "true") || exporter == "none" {
		return false, nil
	}
	endpoint := false
	for _, name := range []string{envEndpoint, envTracesEndpoint} {
		if text := f.variable(name); text != "" {
			if err := checkEndpoint(text); err != nil {
				return false, &usageError{fmt.Errorf("%s %w", name, err)}
			}
			endpoint = true
		}
	}
	switch {
	case exporter != "" && exporter != "otlp":
		f.logger.Warn(envExporter+" names an exporter that there is none of, and no spans are sent: use otlp or none", "value", exporter)
		return false, nil
	case exporter == "" && !endpoint:
		return false, nil
	}
	for _, name := range []string{envProtocol, envTracesProtocol} {
		if protocol := f.variable(name); protocol != "" && protocol != "http/protobuf" && protocol != "http/json" {
			f.logger.Warn(name+" is not available: spans go by http/protobuf", "value", protocol)
		}
	}
	return true, nil
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
	text := f.variable(variable)
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

// checkEndpoint says what is wrong with the URL of a collector, without quoting it: it may
// have a password in it.
func checkEndpoint(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("is no URL: use one such as http://localhost:4318")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("does not begin with http:// or https://: use a URL such as http://localhost:4318")
	case u.Hostname() == "":
		return errors.New("has no host: use a URL such as http://localhost:4318")
	}
	return nil
}

// variable is one of the program's environment, as the SDK reads it; the last one of a name counts.
func (p *invocation) variable(name string) (value string) {
	for _, entry := range p.environ {
		if text, ok := strings.CutPrefix(entry, name+"="); ok {
			value = strings.TrimSpace(text)
		}
	}
	return value
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
