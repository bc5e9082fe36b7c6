package otlp

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMetricsAreSentOnlyWhereTheStandardVariablesAskForIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		environ []string
		want    bool
	}{
		"nothing":                 {[]string{"OTEL_SERVICE_NAME=shop"}, false},
		"the exporter":            {[]string{"OTEL_METRICS_EXPORTER=otlp"}, true},
		"an endpoint":             {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318"}, true},
		"one for metrics":         {[]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=https://c.example/v1/metrics"}, true},
		"one for traces":          {[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://localhost:4318"}, false},
		"traces alone":            {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318", "OTEL_METRICS_EXPORTER=none"}, false},
		"disabled":                {[]string{"OTEL_METRICS_EXPORTER=otlp", "OTEL_SDK_DISABLED=TRUE"}, false},
		"an exporter of others":   {[]string{"OTEL_METRICS_EXPORTER=prometheus", "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318"}, false},
		"a protocol of others":    {[]string{"OTEL_METRICS_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, true},
		"the last one of a name":  {[]string{"OTEL_METRICS_EXPORTER=otlp", "OTEL_METRICS_EXPORTER=none"}, false},
		"an endpoint that is not": {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT="}, false},
	} {
		got, err := Wanted(c.environ, slog.New(slog.DiscardHandler))
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
	for _, url := range []string{"localhost:4318", "grpc://localhost:4317", "http://", "http://a b"} {
		_, err := Wanted([]string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + url}, slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, "OTEL_EXPORTER_OTLP_ENDPOINT is no URL", url)
	}
}
