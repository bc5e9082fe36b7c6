package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/waybill-go/waybill/framework/program/internal/columns"
)

// Print writes the result for people: for each scenario a table with a line for each case, with the
// median, minimum and maximum of its runs.
func (r *Result) Print(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n%s\n%s\n", r.Where(), r.How(), r.Caches())
	for _, s := range r.Scenarios {
		fmt.Fprintf(w, "\n%s: %s\n\n", s.Name, explanations[s.Name])
		s.print(w)
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
	if len(r.Warnings) > 0 {
		fmt.Fprintln(w, "\nBefore you trust these figures:")
		for _, warning := range r.Warnings {
			fmt.Fprintln(w, "  - "+warning)
		}
	}
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

// Where describes the machine and the database in a line.
func (r *Result) Where() string {
	return fmt.Sprintf("On %s %s, %.2f ms away; %s, %s, %s of memory, %s, %s.", r.Server.Kind, r.Server.Version, r.Server.RoundTripMS,
		orUnknown(r.Machine.Processor), plural(r.Machine.Processors, "processor"), bytesText(int64(r.Machine.MemoryBytes)), r.Machine.Platform, r.Machine.Go)
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown processor"
	}
	return text
}

// How describes in a line how it was measured.
func (r *Result) How() string {
	s := r.Settings
	return fmt.Sprintf("Payloads of %s with %s; medians of %s after a warm-up, with minimum and maximum in parentheses.",
		plural(s.PayloadBytes, "byte"), plural(s.Keys, "key"), plural(s.Runs, "run"))
}

// Caches describes in a line which caches are warm when a run begins.
func (r *Result) Caches() string {
	return "Warm in each run: the rows of a backlog, which were written just before and come from memory; the connections to the database. " +
		"Cold: the forwarder, its cursors, the sinks and their connections."
}

// quantities returns all quantities of the scenario's cases, in order.
func (s Scenario) quantities() []Quantity {
	var list []Quantity
	for _, c := range s.Cases {
		for _, m := range c.Metrics {
			if !slices.Contains(list, m.Quantity) {
				list = append(list, m.Quantity)
			}
		}
	}
	return list
}

// maxColumns is how many quantities fit side by side on a terminal. If there are more, each has a
// line.
const maxColumns = 6

// Grid returns the scenario's table with its head: a line for each case and a column for each
// quantity, or the other way round if there are many quantities.
func (s Scenario) Grid() [][]string {
	quantities := s.quantities()
	grid := [][]string{{""}}
	for _, q := range quantities {
		grid[0] = append(grid[0], q.title())
	}
	for _, c := range s.Cases {
		if c.Skipped != "" {
			continue
		}
		line := []string{c.Name}
		for _, q := range quantities {
			line = append(line, c.cell(q))
		}
		grid = append(grid, line)
	}
	if len(quantities) > maxColumns {
		return transposed(grid)
	}
	return grid
}

func transposed(grid [][]string) [][]string {
	turned := make([][]string, len(grid[0]))
	for _, line := range grid {
		for i, cell := range line {
			turned[i] = append(turned[i], cell)
		}
	}
	return turned
}

func (s Scenario) print(w io.Writer) {
	grid := s.Grid()
	t := columns.New(w, 1, anys(grid[0])...)
	for _, line := range grid[1:] {
		t.AppendRow(anys(line))
	}
	t.Render()
}

func anys(texts []string) table.Row {
	row := make(table.Row, len(texts))
	for i, text := range texts {
		row[i] = text
	}
	return row
}

// title returns the name of a quantity in the head of a column.
func (q Quantity) title() string {
	name := strings.ReplaceAll(q.Name, "_", " ")
	switch {
	case q.Unit == "":
		return name
	case strings.HasPrefix(q.Unit, q.Name):
		return q.Unit
	case strings.Contains(q.Unit, "/"):
		return name + " " + q.Unit
	}
	return name + " " + q.Unit
}

// cell returns the median, with minimum and maximum if they differ.
func (c Case) cell(q Quantity) string {
	m := c.find(q.Name)
	if m == nil {
		return ""
	}
	median, least, most := number(m.Median), number(m.Min), number(m.Max)
	if least == most {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, least, most)
}

// Verdict returns a sentence about whether everything arrived.
func (r *Result) Verdict() string {
	var expected int64
	for _, s := range r.Scenarios {
		for _, c := range s.Cases {
			for _, check := range c.Checks {
				expected += check.Expected
			}
		}
	}
	if !r.OK {
		return "FAILED: what arrived is not what was committed. Do not trust these figures, and report this:"
	}
	return fmt.Sprintf("Checked by their ids: all %s arrived, in every run.", plural(int(expected), "notification"))
}

// Losses returns a line for each failed check.
func (r *Result) Losses() []string {
	var list []string
	for _, s := range r.Scenarios {
		for _, c := range s.Cases {
			for _, check := range c.Checks {
				if !check.ok() {
					list = append(list, fmt.Sprintf("%s, %s: of %s, %s were lost at %s (%s), and %s arrived that were never published",
						s.Name, c.Name, plural(int(check.Expected), "notification"), count(check.Lost), check.Sink, check.Counted, count(check.Unknown)))
				}
			}
		}
	}
	return list
}

// settingsText lists settings in alphabetical order.
func settingsText(settings map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		list = append(list, name+" "+settings[name])
	}
	return strings.Join(list, ", ")
}
