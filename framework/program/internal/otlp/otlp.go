// Package otlp sends metrics to an OpenTelemetry collector, as OTLP over HTTP, and logs whether metrics
// and spans arrive there.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// endTimeout limits how long ending waits for the last figures to be sent.
const endTimeout = 3 * time.Second

// Service identifies the sender.
type Service struct{ name, version, instance string }

// NewService returns a service with a new service.instance.id.
func NewService(name, version string) Service { return Service{name, version, uuid.NewString()} }

// Resource returns the attributes of the sender for spans and metrics. OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES override them. With an error it may return a part of the attributes.
func (s Service) Resource(ctx context.Context) (*resource.Resource, error) {
	return resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName(s.name), semconv.ServiceVersion(s.version), semconv.ServiceInstanceID(s.instance)),
		resource.WithFromEnv(),
	)
}

// Push sends the metrics of a gatherer regularly until end is called. end sends them once more, and takes
// a few seconds at most. If the collector cannot be reached, Push logs it once, and tries again at the
// next interval.
func Push(ctx context.Context, g prometheus.Gatherer, s Service, logger *slog.Logger) (end func(), err error) {
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("sending metrics: %w", err)
	}
	who, err := s.Resource(ctx)
	if who == nil {
		return nil, errors.Join(fmt.Errorf("sending metrics: %w", err), exporter.Shutdown(ctx))
	}
	if err != nil { // a part of the resource is missing
		logger.Warn("sending metrics", "error", err)
	}
	reader := metric.NewPeriodicReader(&reporting{exporter, outage{what: "metrics", log: logger}}, metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(g))))
	provider := metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(who))
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			logger.Warn("the last metrics were not sent", "error", err)
		}
	}, nil
}

// reporting is an exporter of metrics that logs failures. The reader does not call it concurrently.
type reporting struct {
	metric.Exporter
	outage
}

// Export sends metrics. It logs errors and does not return them, since the SDK would print them.
func (r *reporting) Export(ctx context.Context, figures *metricdata.ResourceMetrics) error {
	r.note(r.Exporter.Export(ctx, figures))
	return nil
}

// Spans is an exporter of spans that logs when sending starts to fail and when it works again, instead of
// each failure. It is not safe for concurrent use, which the SDK does not need.
type Spans struct {
	trace.SpanExporter
	outage
}

// NewSpans returns a Spans that sends with an exporter.
func NewSpans(to trace.SpanExporter, logger *slog.Logger) *Spans {
	return &Spans{to, outage{what: "spans", log: logger}}
}

// ExportSpans sends spans. It logs errors and does not return them, since the SDK would print them.
func (s *Spans) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	s.note(s.SpanExporter.ExportSpans(ctx, spans))
	return nil
}

// outage logs the beginning and the end of a time in which sending fails.
type outage struct {
	what    string
	log     *slog.Logger
	failing bool
}

func (o *outage) note(err error) {
	switch {
	case err != nil && !o.failing:
		o.log.Warn("sending "+o.what+" failed, trying again", "error", err)
	case err == nil && o.failing:
		o.log.Info("sending " + o.what + " works again")
	}
	o.failing = err != nil
}
