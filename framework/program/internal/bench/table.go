package bench

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/waybill-go/waybill/benchmarks/result"
	"github.com/waybill-go/waybill/framework/program/internal/columns"
)

// Print writes the result for people: for each scenario a table with a line for each case, with the
// median, minimum and maximum of its runs. The last line is the advice.
func Print(w io.Writer, r *result.Result) {
	fmt.Fprintf(w, "\n%s\n%s\n%s\n", r.Where(), r.How(), r.Caches())
	for _, s := range r.Scenarios {
		fmt.Fprintf(w, "\n%s: %s\n\n", s.Name, explanations[s.Name])
		printGrid(w, 1, s.Grid())
		for _, c := range s.Cases {
			if c.Skipped != "" {
				fmt.Fprintf(w, "%s was skipped: %s\n", c.Name, c.Skipped)
			}
		}
	}
	fmt.Fprintf(w, "\n%s\n", r.Verdict())
	for _, c := range r.Losses() {
		fmt.Fprintln(w, "  "+c)
	}
	printWarnings(w, "figures", r.Warnings)
	if r.Advice != "" {
		fmt.Fprintf(w, "\n%s\n", r.Advice)
	}
}

// PrintComparison writes a comparison for people.
func PrintComparison(w io.Writer, c result.Comparison) {
	if len(c.Rows) == 0 {
		fmt.Fprintln(w, "The two have nothing in common.")
	} else {
		printGrid(w, 2, c.Grid())
	}
	printWarnings(w, "ratios", c.Warnings)
}

func printWarnings(w io.Writer, of string, warnings []string) {
	if len(warnings) > 0 {
		fmt.Fprintf(w, "\nBefore you trust these %s:\n", of)
	}
	for _, warning := range warnings {
		fmt.Fprintln(w, "  - "+warning)
	}
}

// printGrid prints lines below their head. The first words columns have no figures.
func printGrid(w io.Writer, words int, grid [][]string) {
	var t table.Writer
	for i, line := range grid {
		row := make(table.Row, len(line))
		for k, text := range line {
			row[k] = text
		}
		if i == 0 {
			t = columns.New(w, words, row...)
			continue
		}
		t.AppendRow(row)
	}
	t.Render()
}

// explanations has a line for each scenario: what it measures.
var explanations = map[string]string{
	"publish": "the cost of notifications for the transactions that publish them",
	"drain":   "how fast a backlog is delivered",
	"latency": "the time from a commit to the sink's receipt, at a steady rate",
	"sustain": "publishing and delivering at the same time",
	"sweep":   "throughput by parallelism threshold",
	"fault":   "throughput during faults, compared with normal operation",
}
