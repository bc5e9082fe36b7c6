package bench

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/benchmarks/result"
)

// swept returns a sweep of a sink with these rates at the thresholds 1, 16 and 256.
func swept(rates ...float64) result.Scenario {
	s := result.Scenario{Name: "sweep"}
	for i, n := range []int{1, 16, 256} {
		c := result.Case{Name: fmt.Sprintf("http%s%d", sweepSeparator, n)}
		c.Add(result.Figure{Quantity: throughput, Value: rates[i]}, result.Figure{Quantity: atMost, Value: float64(n)})
		s.Cases = append(s.Cases, c)
	}
	return s
}

func TestAdviceFollowsFromTheFigures(t *testing.T) {
	t.Parallel()
	one := func(name, of string, figures ...result.Figure) result.Scenario {
		c := result.Case{Name: of}
		c.Add(figures...)
		return result.Scenario{Name: name, Cases: []result.Case{c}}
	}
	for want, s := range map[string]result.Scenario{
		"The throughput to http still grows at 256: set threshold: 256, and measure higher ones.": swept(100, 500, 900),
		"The throughput to http hardly grows above 16: set threshold: 16.":                        swept(100, 880, 900),
		"The throughput to http hardly grows above 1: set threshold: 1.":                          swept(900, 880, 700),
		"A backlog drains slowest to smtp, with 3,869/s: waybill bench sweep finds the threshold that it needs.": one("drain", "smtp",
			result.Figure{Quantity: throughput, Value: 3869}),
		"The forwarder keeps up with 2,000 notifications/s.": one("sustain", "to noop",
			result.Figure{Quantity: publishedRate, Value: 2000}, result.Figure{Quantity: deliveredRate, Value: 1990}),
		"The forwarder does not keep up: 2,000/s are published and 1,000/s delivered: set a higher threshold (waybill bench sweep), or add forwarders.": one("sustain", "to noop",
			result.Figure{Quantity: publishedRate, Value: 2000}, result.Figure{Quantity: deliveredRate, Value: 1000}),
	} {
		require.Equal(t, want, advice(&result.Result{OK: true, Scenarios: []result.Scenario{s}}))
	}
	require.Empty(t, advice(&result.Result{Scenarios: []result.Scenario{swept(1, 2, 3)}}), "figures of a run with losses lead to nothing")
}
