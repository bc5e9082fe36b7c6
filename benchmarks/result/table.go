package result

import (
	"fmt"
	"slices"
	"strings"
)

// Where describes the machine and the database in a line.
func (r *Result) Where() string {
	return fmt.Sprintf("On %s %s, %.2f ms away; %s, %s, %s of memory, %s, %s.", r.Server.Kind, r.Server.Version, r.Server.RoundTripMS,
		orUnknown(r.Machine.Processor), Plural(r.Machine.Processors, "processor"), Bytes(int64(r.Machine.MemoryBytes)), r.Machine.Platform, r.Machine.Go)
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
		Plural(s.PayloadBytes, "byte"), Plural(s.Keys, "key"), Plural(s.Runs, "run"))
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

// title returns the name of a quantity in the head of a column.
func (q Quantity) title() string {
	name := strings.ReplaceAll(q.Name, "_", " ")
	switch {
	case q.Title != "":
		return q.Title
	case q.Unit == "":
		return name
	case strings.HasPrefix(q.Unit, q.Name):
		return q.Unit
	}
	return name + " " + q.Unit
}

// cell returns the median, with minimum and maximum if they differ.
func (c Case) cell(q Quantity) string {
	m := c.Find(q.Name)
	if m == nil {
		return ""
	}
	median, least, most := Number(m.Median), Number(m.Min), Number(m.Max)
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
	return fmt.Sprintf("Checked by their ids: all %s arrived, in every run.", Plural(int(expected), "notification"))
}

// Losses returns a line for each failed check.
func (r *Result) Losses() []string {
	var list []string
	for _, s := range r.Scenarios {
		for _, c := range s.Cases {
			for _, check := range c.Checks {
				if !check.OK() {
					list = append(list, fmt.Sprintf("%s, %s: of %s, %s were lost at %s (%s), and %s arrived that were never published",
						s.Name, c.Name, Plural(int(check.Expected), "notification"), Count(check.Lost), check.Sink, check.Counted, Count(check.Unknown)))
				}
			}
		}
	}
	return list
}
