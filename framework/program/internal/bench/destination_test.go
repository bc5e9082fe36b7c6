package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/forwarder"
)

// shop is a configuration with sinks of several kinds.
var shop = &config.Config{Sinks: map[string]config.Sink{
	"events":  {Kind: "kafka"},
	"partner": {Kind: "http", Sink: forwarder.Sink{Parallelism: forwarder.Parallelism{Threshold: 7, Above: forwarder.AboveSequential}, Timeout: time.Second}},
	"mail":    {Kind: "email"},
	"archive": {Kind: "jsonlines"},
}}

func TestDestinationsAreChosenByTheConfiguration(t *testing.T) {
	t.Parallel()
	type want struct {
		name, counted string
		threshold     int
	}
	for name, c := range map[string]struct {
		config Config
		wants  []want
	}{
		"all receivers": {Config{}, []want{
			{"noop", countedReceived, 256}, {"kafka", countedConsumed, 16}, {"http", countedReceived, 16}, {"smtp", countedReceived, 4}}},
		"the named receivers": {Config{Sinks: []string{"smtp", "noop"}, Thresholds: []int{9}}, []want{
			{"smtp", countedReceived, 9}, {"noop", countedReceived, 9}}},
		"one for each configured sink": {Config{Configured: shop}, []want{
			{"archive (built-in noop)", countedReceived, 16}, {"events (built-in kafka)", countedConsumed, 16},
			{"mail (built-in smtp)", countedReceived, 16}, {"partner (built-in http)", countedReceived, 7}}},
		"real ones": {Config{Configured: shop, Sinks: []string{"partner"}}, []want{{"partner", countedReceipts, 7}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.config.Delay = time.Millisecond
			var got []want
			for _, d := range c.config.destinations() {
				got = append(got, want{d.name, d.counted, d.settings.Parallelism.Threshold})
				require.Equal(t, time.Millisecond, d.delay)
			}
			require.Equal(t, c.wants, got)
		})
	}
}

func TestAStandInHasTheSettingsOfItsSink(t *testing.T) {
	t.Parallel()
	s := Config{Configured: shop}.standIn("partner").settings
	require.Equal(t, forwarder.AboveSequential, s.Parallelism.Above)
	require.Equal(t, time.Second, s.Timeout)
	require.Nil(t, s.Sink)
}
