package result

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	throughput = Quantity{Name: "throughput", Unit: "notifications/s", Better: "higher"}
	p99        = Quantity{Name: "p99", Unit: "ms", Better: "lower"}
	lag        = Quantity{Name: "lag", Unit: "notifications", Better: "lower"}
	rowsOf     = Quantity{Name: "rows"}
)

// resultOf returns a result with one case and these runs of its metrics.
func resultOf(runs map[Quantity][]float64) *Result {
	c := Case{Name: "noop"}
	for q, values := range runs {
		for _, v := range values {
			c.metric(q).add(v)
		}
	}
	return &Result{Format: Format, OK: true, Scenarios: []Scenario{{Name: "drain", Cases: []Case{c}}}}
}

// one compares the runs of one quantity.
func one(q Quantity, before, after []float64) ComparedMetric {
	return Compare(resultOf(map[Quantity][]float64{q: before}), resultOf(map[Quantity][]float64{q: after})).Rows[0]
}

func TestTheRatioHasTheIntervalOfWelch(t *testing.T) {
	t.Parallel()
	m := one(throughput, []float64{100, 110, 121}, []float64{200, 220, 242})
	require.InDelta(t, 2, m.Ratio, 1e-9)
	// Computed by hand: both variances are log(1.1)² = 0.009084, so the standard error of the difference of
	// the means is sqrt(2·0.009084/3) = 0.077821 with 4 degrees of freedom, for which Student's table has
	// 2.776445.
	margin := math.Exp(2.776445 * 0.077821)
	require.InDelta(t, 2/margin, m.Low, 1e-4)
	require.InDelta(t, 2*margin, m.High, 1e-4)
	require.Equal(t, Better, m.Verdict)
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	low, high := []float64{100, 101, 102}, []float64{200, 201, 202}
	require.Equal(t, Better, one(throughput, low, high).Verdict)
	require.Equal(t, Worse, one(throughput, high, low).Verdict)
	require.Equal(t, Worse, one(p99, low, high).Verdict, "more time is worse")
	require.Equal(t, Better, one(p99, high, low).Verdict)
	require.Equal(t, Same, one(throughput, []float64{100, 200, 300}, []float64{110, 190, 320}).Verdict)
	require.Equal(t, Same, one(throughput, low, low).Verdict)
	require.Equal(t, Unknown, one(throughput, []float64{100}, []float64{200}).Verdict)
	require.Equal(t, Same, one(throughput, []float64{5, 5}, []float64{5, 5}).Verdict)
	require.Equal(t, Better, one(throughput, []float64{5, 5}, []float64{10, 10}).Verdict)
}

func TestWorseMeansByMoreThanTheTolerance(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		of             Quantity
		before, after  []float64
		worse, unclear int
	}{
		"slower":                 {throughput, []float64{100, 101, 102}, []float64{80, 81, 82}, 1, 0},
		"a little slower":        {throughput, []float64{100, 101, 102}, []float64{92, 93, 94}, 0, 0},
		"faster":                 {throughput, []float64{100, 101, 102}, []float64{150, 151, 152}, 0, 0},
		"longer":                 {p99, []float64{100, 101, 102}, []float64{115, 116, 117}, 1, 0},
		"shorter":                {p99, []float64{100, 101, 102}, []float64{50, 51, 52}, 0, 0},
		"slower, perhaps":        {throughput, []float64{50, 100, 200}, []float64{40, 80, 160}, 0, 1},
		"one run, slower":        {throughput, []float64{100}, []float64{80}, 1, 0},
		"one run, hardly slower": {throughput, []float64{100}, []float64{91}, 0, 0},
		"neither good nor bad":   {rowsOf, []float64{100}, []float64{1}, 0, 0},
	} {
		comparison := Compare(resultOf(map[Quantity][]float64{c.of: c.before}), resultOf(map[Quantity][]float64{c.of: c.after}))
		worse, unclear := comparison.Worse(0.1)
		require.Len(t, worse, c.worse, name)
		require.Len(t, unclear, c.unclear, name)
	}
	require.Equal(t, "drain, noop: throughput notifications/s was 176,043 before and is 88,022 now: 0.50 times",
		one(throughput, []float64{176043}, []float64{88021.5}).String())
}

func TestDifferencesThatPreventAComparisonAreWarnings(t *testing.T) {
	t.Parallel()
	before := resultOf(map[Quantity][]float64{throughput: {1, 2}, rowsOf: {3, 3}, lag: {0, 0}})
	after := resultOf(map[Quantity][]float64{throughput: {1, 2}, rowsOf: {4, 4}, lag: {0, 0}})
	before.Machine, after.Machine = Machine{Processors: 2, Busy: 0.1}, Machine{Processors: 4, Busy: 0.2}
	before.Server, after.Server = Server{Kind: "SQLite", RoundTripMS: 1}, Server{Kind: "PostgreSQL", RoundTripMS: 2}
	before.Settings.PayloadBytes = 300
	before.Waybill, after.Waybill, before.OK = "v1.0.0", "v1.1.0", false
	after.Warnings = []string{"fsync is off"}
	before.Scenarios = append(before.Scenarios, Scenario{Name: "publish"})
	after.Scenarios = append(after.Scenarios, Scenario{Name: "latency"})
	after.Scenarios[0].Cases = append(after.Scenarios[0].Cases, Case{Name: "http"})
	before.Scenarios[0].Cases = append(before.Scenarios[0].Cases, Case{Name: "smtp"})

	c := Compare(before, after)
	require.Len(t, c.Rows, 1, "quantities without a better direction, and zeros, are left out")
	require.Equal(t, []string{
		"before lost notifications: its figures are worth nothing",
		"after: fsync is off",
		"the versions of waybill differ: v1.0.0 before, v1.1.0 after",
		"machine: processors differs: 2 before, 4 after",
		"database: kind differs: SQLite before, PostgreSQL after",
		"settings: payload_bytes differs: 300 before, 0 after",
		"only before has drain, smtp",
		"only before has publish",
		"only after has latency",
	}, c.Warnings)
	require.Equal(t, []string{"drain, noop", "throughput notifications/s", "1.50", "1.50", "1.00", "0.12–8.24", string(Same)}, c.Grid()[1])
}
