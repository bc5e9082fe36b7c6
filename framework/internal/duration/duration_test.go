package duration_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/duration"
)

func TestDurationsHaveNoZeroUnits(t *testing.T) {
	t.Parallel()
	for text, d := range map[string]time.Duration{
		"0s": 0, "10s": 10 * time.Second, "1m30s": 90 * time.Second, "15m": 15 * time.Minute, "1h30m": 90 * time.Minute,
		"48h": 48 * time.Hour, "1h0m1s": time.Hour + time.Second, "100ms": 100 * time.Millisecond,
	} {
		require.Equal(t, text, duration.Text(d))
	}
}
