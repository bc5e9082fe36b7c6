package program

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The SDK quotes headers that it cannot parse in errors, although they may be secret.
func TestHeadersForACollectorAreNotLogged(t *testing.T) {
	t.Parallel()
	for name, environ := range map[string][]string{
		"metrics":          {"OTEL_METRICS_EXPORTER=otlp", "OTEL_TRACES_EXPORTER=none"},
		"traces":           {"OTEL_METRICS_EXPORTER=none", "OTEL_TRACES_EXPORTER=otlp"},
		"both":             {"OTEL_METRICS_EXPORTER=otlp", "OTEL_TRACES_EXPORTER=otlp"},
		"metrics for some": {"OTEL_EXPORTER_OTLP_METRICS_HEADERS=authorization:Bearer hunter3", "OTEL_METRICS_EXPORTER=otlp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := databases["sqlite"](t)
			o.migrate(t)
			o.publish(t, 1, 3)
			destination := newReceiver(t)
			f := startIn(t, append([]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT=http://ada:hunter1@127.0.0.1:1", "OTEL_EXPORTER_OTLP_HEADERS=api-key:hunter2,authorization=Bearer%zzhunter4,x y=hunter5",
				"OTEL_METRIC_EXPORT_INTERVAL=20", "OTEL_BSP_SCHEDULE_DELAY=20",
			}, environ...), "forward", "-c", o.config(t, "15s", destination.URL))
			destination.await(t, 3)
			f.signal(t, syscall.SIGTERM)
			var all strings.Builder
			for line := range f.lines {
				all.WriteString(line + "\n")
			}
			require.Zero(t, f.wait())
			require.NotContains(t, all.String(), "hunter")
			require.Contains(t, all.String(), "missing '=", "the error names the mistake")
		})
	}
}

// A request whose body never ends keeps its connection, even if it is refused.
func TestAClientThatDoesNotSendItsBodyTimesOut(t *testing.T) {
	t.Parallel()
	o := databases["sqlite"](t)
	o.migrate(t)
	path := o.config(t, "15s", "http://127.0.0.1:1/")
	address := observed(t, path)
	f := start(t, "forward", "-c", path)
	awaitPage(t, address, "/readyz", http.StatusOK, "ready")
	for _, request := range []string{
		"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\na=",
		"POST /parked/plan HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\na=",
		"POST /api/v1/actions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{ \r\n",
		"POST / HTTP/1.1\r\nHost: attacker.example\r\nContent-Length: 1000\r\n\r\na=",
	} {
		t.Run(strings.Fields(request)[1], func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", address)
			require.NoError(t, err)
			defer c.Close()
			_, err = io.WriteString(c, request)
			require.NoError(t, err)
			require.NoError(t, c.SetReadDeadline(time.Now().Add(patience)))
			_, err = io.Copy(io.Discard, c)
			require.NoError(t, err, fmt.Sprint("the server closes the connection; within ", patience))
		})
	}
	t.Cleanup(func() {
		f.signal(t, syscall.SIGTERM)
		require.Zero(t, f.wait())
	})
}
