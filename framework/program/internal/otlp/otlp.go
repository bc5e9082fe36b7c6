// Package otlp sends metrics to a collector of OpenTelemetry, as OTLP over HTTP, and says in the
// log whether metrics and spans get there.
package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// endTimeout bounds how long the end waits for the last figures to be sent.
const endTimeout = 3 * time.Second

// Standard variables that switch this on and off. The SDK reads the others: headers,
// certificates, timeouts, the resource, and how often figures are sent (a minute).
const (
	disabled        = "OTEL_SDK_DISABLED"
	exporter        = "OTEL_METRICS_EXPORTER"
	endpoint        = "OTEL_EXPORTER_OTLP_ENDPOINT"
	metricsEndpoint = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
	protocol        = "OTEL_EXPORTER_OTLP_PROTOCOL"
	metricsProtocol = "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"
)

// Wanted says whether the environment asks for metrics to be sent: OTEL_METRICS_EXPORTER is
// otlp, or not set beside an endpoint. The error is an endpoint that is no URL. Other values that
// there are none of are logged, as the standard asks, and not heeded.
func Wanted(environ []string, logger *slog.Logger) (bool, error) {
	named := variable(environ, exporter)
	if named != "" && named != "otlp" && named != "none" {
		logger.Warn(exporter+" names an exporter that there is none of, and no metrics are sent: use otlp or none", "value", named)
	}
	if strings.EqualFold(variable(environ, disabled), "true") || named != "" && named != "otlp" {
		return false, nil
	}
	wanted := named == "otlp"
	for _, name := range []string{endpoint, metricsEndpoint} {
		text := variable(environ, name)
		if text == "" {
			continue
		}
		// Without quoting it: it may have a password in it.
		if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			return false, fmt.Errorf("%s is no URL such as http://localhost:4318", name)
		}
		wanted = true
	}
	how := cmp.Or(variable(environ, metricsProtocol), variable(environ, protocol), only)
	if wanted && how != only {
		logger.Warn("metrics are sent by "+only+" whatever "+metricsProtocol+" or "+protocol+" says", "value", how)
	}
	return wanted, nil
}

// only is the protocol that there is.
const only = "http/protobuf"

// variable is one of an environment; the last one of a name counts.
func variable(environ []string, name string) (value string) {
	for _, entry := range environ {
		if text, ok := strings.CutPrefix(entry, name+"="); ok {
			value = strings.TrimSpace(text)
		}
	}
	return value
}

// Service is who sends.
type Service struct{ Name, Version string }

// Push sends the figures of a gatherer over and over, until end is called, which sends them once
// more and takes a few seconds at most. Each process has a service.instance.id of its own,
// unless OTEL_RESOURCE_ATTRIBUTES has one. A collector that cannot be reached is logged
// once, and tried again with the next figures.
func Push(ctx context.Context, g prometheus.Gatherer, s Service, logger *slog.Logger) (end func(), err error) {
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("sending metrics: %w", err)
	}
	who, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(
			attribute.String("service.name", s.Name), attribute.String("service.version", s.Version),
			attribute.String("service.instance.id", uuid.NewString())),
		resource.WithFromEnv(),
	)
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
