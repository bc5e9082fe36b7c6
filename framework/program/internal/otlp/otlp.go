// Package otlp sends metrics to a collector of OpenTelemetry, as OTLP over HTTP, and says in the
// log whether metrics and spans get there.
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

// Resource is what spans and metrics say of who sends them; OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES win. Beside an error there may be a part of it.
func (s Service) Resource(ctx context.Context) (*resource.Resource, error) {
	return resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName(s.name), semconv.ServiceVersion(s.version), semconv.ServiceInstanceID(s.instance)),
		resource.WithFromEnv(),
	)
}

// Push sends the figures of a gatherer over and over, until end is called, which sends them once
// more and takes a few seconds at most. A collector that cannot be reached is logged once, and tried
// again with the next figures.
func Push(ctx context.Context, g prometheus.Gatherer, s Service, logger *slog.Logger) (end func(), err error) {
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("sending metrics: %w", err)
	}
	who, err := s.Resource(ctx)
	if who == nil {
		return nil, errors.Join(fmt.Errorf("sending metrics: %w", err), exporter.Shutdown(ctx))
	}
	if err != nil { // of a part of it
		logger.Warn("sending metrics", "error", err)
	}
	reader := metric.NewPeriodicReader(&reporting{exporter, outage{what: "metrics", log: logger}}, metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(g))))
	provider := metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(who))
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			logger.Warn("metrics were not sent to the end", "error", err)
		}
	}, nil
}

// reporting is an exporter of metrics whose failures are logged. The reader calls it from
// one goroutine at a time.
type reporting struct {
	metric.Exporter
	outage
}

// Export sends figures. Its error is logged, not returned: the SDK would print it.
func (r *reporting) Export(ctx context.Context, figures *metricdata.ResourceMetrics) error {
	r.note(r.Exporter.Export(ctx, figures))
	return nil
}

// Spans is an exporter of spans that logs when sending begins to fail and when it works again,
// in place of each failure. It is not safe for concurrent use, as the SDK asks for none.
type Spans struct {
	trace.SpanExporter
	outage
}

// NewSpans returns one over an exporter.
func NewSpans(to trace.SpanExporter, logger *slog.Logger) *Spans {
	return &Spans{to, outage{what: "spans", log: logger}}
}

// ExportSpans sends spans. It returns no error, for the reason of the metrics' Export.
func (s *Spans) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	s.note(s.SpanExporter.ExportSpans(ctx, spans))
	return nil
}

// outage is one line in the log for each time in which nothing gets through.
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
