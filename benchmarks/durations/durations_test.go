package durations_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/benchmarks/durations"
)

func TestPercentilesAreMilliseconds(t *testing.T) {
	t.Parallel()
	h := durations.New()
	require.Zero(t, h.Percentile(99))
	for n := range 100 {
		h.Record(time.Duration(n+1) * time.Millisecond)
	}
	require.InDelta(t, 50, h.Percentile(50), 0.1)
	require.InDelta(t, 99, h.Percentile(99), 0.1)
	require.InDelta(t, 100, h.Percentile(100), 0.1)
	h.Reset()
	h.Record(-time.Second)
	require.Zero(t, h.Percentile(100))
	h.Record(24 * time.Hour)
	require.InDelta(t, time.Hour.Milliseconds(), h.Percentile(100), 10_000)
}
