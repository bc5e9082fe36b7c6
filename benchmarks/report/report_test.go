package report_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/benchmarks/report"
	"github.com/waybill-go/waybill/benchmarks/result"
	"github.com/waybill-go/waybill/benchmarks/scenario"
)

func sample(rate float64) scenario.Sample {
	return scenario.Sample{Complete: true, Metrics: map[string]float64{"rate": rate, "cpu": 0.5}}
}

func compared() *result.Result {
	lossy := sample(3)
	lossy.Complete, lossy.Lost, lossy.Repeats, lossy.Swapped, lossy.Unsettled = false, 1200, 2, 3, 4
	return &result.Result{Machine: result.Machine{Cores: 2, Settings: map[string]string{"fsync": "on"}}, Scenarios: []result.Scenario{{
		Name: "drain", Title: "Draining", About: "It drains.", Load: [2]float64{1, 2.5},
		Metrics: []scenario.Metric{{Key: "rate", Title: "deliveries/s"}, {Key: "cpu", Title: "CPU", Decimals: 2}, {Key: "postgres_cpu", Title: "CPU: PostgreSQL"}},
		Contenders: []result.Contender{
			{Name: "Waybill", Configuration: "as it is", Runs: []scenario.Sample{sample(1_234_567), sample(900), sample(5000)}},
			{Name: "Other", Configuration: "as it can", Runs: []scenario.Sample{sample(1), lossy}},
		},
	}, {
		Name: "latency", Title: "Latency", Metrics: []scenario.Metric{{Key: "p50", Title: "p50, ms", Decimals: 2}},
		Contenders: []result.Contender{{Name: "Waybill", Configuration: "as it is", Runs: []scenario.Sample{{Metrics: map[string]float64{"p50": 0.5}}}}},
	}}}
}

func TestTablesShowMedianMinimumMaximumAndProblems(t *testing.T) {
	t.Parallel()
	text := report.Markdown(compared(), "plots")
	require.Contains(t, text, "| Waybill | **5,000** (900 – 1,234,567) | 0.50 | – | yes | 0 | 0 | 0 | 0 |")
	require.Contains(t, text, "| Other | **2** (1 – 3) | 0.50 | – | no | 1,200 | 2 | 3 | 4 |")
	require.Contains(t, text, "![Draining](plots/drain.svg)")
	require.Contains(t, text, "of 3 runs. Load average 1.0 before and 2.5 after")
	require.Contains(t, text, "fsync=on")
	require.Equal(t, 1, strings.Count(text, "| Waybill | as it is |"), "once, although it is in two scenarios")

	require.NotContains(t, text, "loses orders")
	r := compared()
	r.Scenarios[0].Contenders[0].Lossy, r.Scenarios[0].Contenders[1].Lossy = "it might", "it looks away"
	text = report.Markdown(r, "plots")
	require.Contains(t, text, "**Other loses orders**: it looks away.")
	require.NotContains(t, text, "it might", "it has lost none")
}

func TestSpoiledRunsAreListedAndCountInNoFigure(t *testing.T) {
	t.Parallel()
	r := compared()
	r.Scenarios[0].Contenders[0].Runs[0].Spoiled = "other processes had 1.20 cores"
	r.Scenarios[0].Contenders[1].Runs[0].Spoiled = "3 samples only"
	r.Scenarios[1].Contenders[0].Runs[0].Spoiled = "2 samples only"
	text := report.Markdown(r, "plots")
	require.Contains(t, text, "| Waybill | **2,950** (900 – 5,000) |")
	require.Contains(t, text, "| Other | **3** |", "the one good run, without a range")
	require.Contains(t, text, "| Waybill | spoiled | yes |")
	require.Contains(t, text, "**Spoiled runs**, which no figure counts: Waybill, run 1: other processes had 1.20 cores; Other, run 1: 3 samples only.")
	require.NotContains(t, report.Markdown(compared(), "plots"), "Spoiled")
}

func TestEachScenarioNamesItsRevision(t *testing.T) {
	t.Parallel()
	r := compared()
	r.Scenarios[0].Revision, r.Scenarios[1].Revision = "0123456789abcdef0123", "abcdef0123456789+"
	text := report.Markdown(r, "plots")
	require.Contains(t, text, ", revision 0123456789ab; ")
	require.Contains(t, text, ", revision abcdef012345 with changes; ")
}

func TestTheSummaryHasTheBestFigureOfEachSide(t *testing.T) {
	t.Parallel()
	run := func(metrics map[string]float64) []scenario.Sample { return []scenario.Sample{{Metrics: metrics}} }
	rate := func(name string, rate float64) result.Contender {
		return result.Contender{Name: name, Runs: run(map[string]float64{"rate": rate, "published": rate})}
	}
	lag := func(name string, p50, p99 float64) result.Contender {
		return result.Contender{Name: name, Runs: run(map[string]float64{"p50": p50, "p99": p99})}
	}
	text := report.Summary(&result.Result{Scenarios: []result.Scenario{
		{Name: "drain-nowhere", Contenders: []result.Contender{
			rate("Waybill (single)", 1000), rate("Waybill (batches)", 1200), rate("River (tuned)", 2000), rate("River (default)", 1), rate("Limit: Waybill", 1e6)}},
		{Name: "latency", Contenders: []result.Contender{lag("Waybill (single)", 1.5, 9), lag("Waybill (polling)", 2.5, 3), lag("Textbook outbox", 50, 5)}},
		{Name: "transactions", Contenders: []result.Contender{rate("Waybill", 300), rate("Plain table", 400)}},
	}}, "plots")
	require.Contains(t, text, "| Waybill | 1,200 | – | – | **1.5** / 9.0 | 300 |")
	require.Contains(t, text, "| River | **2,000** | – | – | – | – |")
	require.Contains(t, text, "| Textbook outbox | – | – | – | 50.0 / **5.0** | **400** |")
	require.Contains(t, text, "| Home-made SKIP LOCKED | – | – | – | – | **400** |")
	require.Contains(t, text, "](plots/summary.svg)")
}

func TestOnlyThePartsBetweenTheMarkersChange(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "page.md")
	const before, after = "# By hand\n\n<!-- generated by make bench-peers: summary begin -->", "<!-- generated by make bench-peers: end -->\n\nalso by hand\n"
	require.NoError(t, os.WriteFile(page, []byte(before+"\nold\n<!-- generated by make bench-peers: summary end -->\n\nby hand too\n\n<!-- generated by make bench-peers: begin -->\nold\n"+after), 0o644))
	for range 2 {
		require.NoError(t, report.Write(compared(), page))
		content, err := os.ReadFile(page)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(content), before))
		require.True(t, strings.HasSuffix(string(content), after))
		require.NotContains(t, string(content), "\nold\n")
		require.Contains(t, string(content), "\n\nby hand too\n\n")
		require.Equal(t, 1, strings.Count(string(content), "## Draining"))
	}
	for _, name := range []string{"drain", "latency", "summary"} {
		requireXML(t, filepath.Join(filepath.Dir(page), "page", name+".svg"))
	}

	require.NoError(t, os.WriteFile(page, []byte("no markers"), 0o644))
	require.ErrorContains(t, report.Write(compared(), page), "are missing")
}

func requireXML(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	decoder, elements := xml.NewDecoder(file), 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if _, is := token.(xml.StartElement); is {
			elements++
		}
	}
	require.Greater(t, elements, 10)
}
