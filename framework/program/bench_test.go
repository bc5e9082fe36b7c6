package program

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkRepeatsAfterSIGKILL kills the real program at full speed, with 64 deliveries of 5 ms each in
// flight, and counts the deliveries that its successor repeats.
func BenchmarkRepeatsAfterSIGKILL(b *testing.B) {
	const threshold, backlog, before = 64, 4000, 2000
	all, most := 0, 0
	for b.Loop() {
		o := databases["postgres"](b)
		o.migrate(b)
		o.publishUnkeyed(b, backlog)
		r := newReceiver(b)
		slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			time.Sleep(5 * time.Millisecond)
			r.ServeHTTP(w, request)
		}))
		config := writeFile(b, fmt.Sprintf(`
database: %q
forwarder: {lease: 1s}
sinks:
  partner:
    kind: http
    with: {url: %q}
    parallelism: {threshold: %d}
routes:
  "order.*": [partner]
`, o.address, slow.URL, threshold))
		first := start(b, "forward", "-c", config)
		r.await(b, before)
		first.signal(b, syscall.SIGKILL)
		first.wait()
		second := start(b, "forward", "-c", config)
		r.await(b, backlog)
		second.signal(b, syscall.SIGTERM)
		require.Zero(b, second.wait())
		slow.Close()
		repeats := 0
		for _, n := range r.counts {
			repeats += n - 1
		}
		all += repeats
		most = max(most, repeats)
	}
	b.ReportMetric(float64(all)/float64(b.N), "repeats")
	b.ReportMetric(float64(most), "repeats-at-most")
	b.ReportMetric(0, "ns/op")
}

func (o outbox) publishUnkeyed(t testing.TB, n int) {
	t.Helper()
	_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox (type, payload)
		SELECT 'order.placed', json_build_object('n', n) FROM generate_series(1, $1::int) n`, n)
	require.NoError(t, err)
}
