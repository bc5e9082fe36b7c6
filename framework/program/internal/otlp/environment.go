package otlp

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
)

// The standard variables that switch sending on and off. In those with %s, the signal is TRACES or
// METRICS. The SDK reads all other variables: headers, certificates, timeouts, the sampler, the
// resource, and the interval of sending (a minute).
const (
	envDisabled       = "OTEL_SDK_DISABLED"
	envExporter       = "OTEL_%s_EXPORTER"
	envEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envSignalEndpoint = "OTEL_EXPORTER_OTLP_%s_ENDPOINT"
	envProtocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envSignalProtocol = "OTEL_EXPORTER_OTLP_%s_PROTOCOL"
)

// Wanted reports whether the environment asks to send spans and metrics: the exporter of the signal is
// otlp, or an endpoint is set and no exporter. It fails if an endpoint is not a URL; the error does not
// quote it, since it may contain a password. Other invalid values are logged. A signal with another
// exporter is not sent.
func Wanted(environ []string, logger *slog.Logger) (spans, metrics bool, err error) {
	switch disabled := Variable(environ, envDisabled); {
	case strings.EqualFold(disabled, "true"):
		return false, false, nil
	case disabled != "" && !strings.EqualFold(disabled, "false"):
		logger.Warn(envDisabled+" is neither true nor false: it counts as false", "value", disabled)
	}
	e := environment{environ, logger}
	if spans, err = e.wants("TRACES", "http/protobuf", "http/json"); err != nil {
		return false, false, err
	}
	metrics, err = e.wants("METRICS", "http/protobuf")
	return spans, metrics, err
}

type environment struct {
	variables []string
	log       *slog.Logger
}

// wants reports whether to send a signal. If the environment names another protocol, the first one
// of protocols is used.
func (e environment) wants(signal string, protocols ...string) (bool, error) {
	named := fmt.Sprintf(envExporter, signal)
	exporter := strings.ToLower(Variable(e.variables, named))
	switch exporter {
	case "", "otlp":
	case "none":
		return false, nil
	default:
		e.log.Warn(named+" names an unknown exporter, so nothing is sent: use otlp or none", "value", exporter)
		return false, nil
	}
	endpoint := false
	for _, name := range []string{envEndpoint, fmt.Sprintf(envSignalEndpoint, signal)} {
		text := Variable(e.variables, name)
		if text == "" {
			continue
		}
		if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			return false, fmt.Errorf("%s is not a URL such as http://localhost:4318", name)
		}
		endpoint = true
	}
	if exporter == "" && !endpoint {
		return false, nil
	}
	own := fmt.Sprintf(envSignalProtocol, signal)
	if protocol := cmp.Or(Variable(e.variables, own), Variable(e.variables, envProtocol), protocols[0]); !slices.Contains(protocols, protocol) {
		e.log.Warn(strings.ToLower(signal)+" are sent by "+protocols[0]+" whatever "+own+" or "+envProtocol+" says", "value", protocol)
	}
	return true, nil
}

// Variable returns a variable of an environment as the SDK reads it: the last one with a name counts.
func Variable(environ []string, name string) (value string) {
	for _, entry := range environ {
		if text, ok := strings.CutPrefix(entry, name+"="); ok {
			value = strings.TrimSpace(text)
		}
	}
	return value
}
