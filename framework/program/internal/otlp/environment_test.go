package otlp

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSpansAndMetricsAreSentOnlyIfStandardVariablesAskForThem(t *testing.T) {
	t.Parallel()
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318"
	type want struct {
		spans, metrics bool
		warning        string // "" for none
	}
	for name, c := range map[string]struct {
		environ []string
		want    want
	}{
		"nothing":                    {[]string{"OTEL_SERVICE_NAME=shop"}, want{}},
		"an endpoint":                {[]string{endpoint}, want{spans: true, metrics: true}},
		"an empty one":               {[]string{"OTEL_EXPORTER_OTLP_ENDPOINT="}, want{}},
		"one for metrics":            {[]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=https://c.example/v1/metrics"}, want{metrics: true}},
		"one for traces":             {[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://localhost:4318"}, want{spans: true}},
		"the exporter":               {[]string{"OTEL_METRICS_EXPORTER=OTLP"}, want{metrics: true}},
		"spans only":                 {[]string{endpoint, "OTEL_METRICS_EXPORTER=none"}, want{spans: true}},
		"metrics only":               {[]string{endpoint, "OTEL_TRACES_EXPORTER=None"}, want{metrics: true}},
		"the last of repeated names": {[]string{"OTEL_TRACES_EXPORTER=otlp", "OTEL_TRACES_EXPORTER=none"}, want{}},
		"unsupported exporters": {
			[]string{endpoint, "OTEL_TRACES_EXPORTER=zipkin", "OTEL_METRICS_EXPORTER=prometheus"},
			want{warning: "OTEL_METRICS_EXPORTER names an unknown exporter"},
		},
		"disabled":        {[]string{endpoint, "OTEL_SDK_DISABLED=TRUE"}, want{}},
		"disabled or not": {[]string{endpoint, "OTEL_SDK_DISABLED=perhaps"}, want{true, true, "OTEL_SDK_DISABLED is neither true nor false"}},
		"an unsupported protocol": {
			[]string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"},
			want{true, true, "traces are sent by http/protobuf whatever"},
		},
		"JSON, for spans only": {
			[]string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=http/json"},
			want{true, true, "metrics are sent by http/protobuf whatever"},
		},
		"a protocol for each": {[]string{endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=http/protobuf"}, want{spans: true, metrics: true}},
	} {
		var said bytes.Buffer
		spans, metrics, err := Wanted(c.environ, slog.New(slog.NewTextHandler(&said, nil)))
		require.NoError(t, err, name)
		require.Equal(t, []bool{c.want.spans, c.want.metrics}, []bool{spans, metrics}, name)
		require.Contains(t, said.String(), c.want.warning, name)
		require.Equal(t, c.want.warning == "", said.Len() == 0, "%s: %s", name, &said)
	}
	for _, variable := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"} {
		for _, url := range []string{"localhost:4318", "grpc://localhost:4317", "http://", "http://a b", "http://u:geheim@h:x"} {
			_, _, err := Wanted([]string{variable + "=" + url}, slog.New(slog.DiscardHandler))
			require.EqualError(t, err, variable+" is not a URL such as http://localhost:4318", url)
		}
	}
}
