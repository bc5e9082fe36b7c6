package process

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

// BenchmarkDeliver makes deliveries of 400 bytes, 64 at a time, to a child that answers each at
// once. The child takes most of the time.
//
// Run: go test -run '^$' -bench Deliver ./sinks/process
func BenchmarkDeliver(b *testing.B) {
	self, err := os.Executable()
	require.NoError(b, err)
	sink, err := New(sinks.Instance{}, Config{Command: []string{self}, Env: map[string]string{childVariable: "child"}})
	require.NoError(b, err)
	require.NoError(b, sink.Open(b.Context()))
	b.Cleanup(func() { _ = sink.Close(b.Context()) })
	require.NoError(b, sink.CheckHealth(b.Context()))
	d := sinktest.NewDelivery(1)
	d.Payload = []byte(`{"text":"` + strings.Repeat("x", 380) + `"}`)
	b.SetParallelism(32)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := sink.Deliver(b.Context(), d); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
}
