package pages

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/forwarder"
)

func TestFiguresAreFormattedForPeople(t *testing.T) {
	t.Parallel()
	require.Equal(t, "1,234,567", count(1_234_567))
	require.Equal(t, "10,000+", count(10_000))
	require.Equal(t, "10,000+", total{n: 10_000, more: true}.String())
	require.Equal(t, "12,345+", total{n: 12_345, more: true}.String())
	require.Equal(t, "≈ 12,300", total{n: 12_345, estimated: true}.String())
	require.Equal(t, "15m", compact(15*time.Minute))
	require.Equal(t, "24h", compact(24*time.Hour))
	require.Equal(t, "1h30m", compact(90*time.Minute))
	require.Equal(t, "1m30s", compact(90*time.Second))
	require.Equal(t, "0s", compact(0))
	require.Equal(t, "0/s", rate(0))
	require.Equal(t, "3/min", rate(.05))
	require.Equal(t, "2.5/s", rate(2.5))
	require.Equal(t, "1,235/s", rate(1234.6))
	require.Equal(t, "/sinks/a%2Fb%3F", sinkPath("a/b?"))
	require.Equal(t, "שלו…", cut("שלום", 3))
}

func TestASinksScheduleOfRetriesIsShown(t *testing.T) {
	t.Parallel()
	for want, retry := range map[string]forwarder.Retry{
		"after 5s, 5m, 2h":              {Pauses: []time.Duration{5 * time.Second, 5 * time.Minute, 2 * time.Hour}},
		"1s to 15m, at most 3 attempts": {MaxAttempts: 3},
		"1s to 15m, for at most 24h":    {},
	} {
		require.Contains(t, settingsOf(forwarder.Sink{Retry: retry}.WithDefaults()), setting{"retry", want})
	}
}
