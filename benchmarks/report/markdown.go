package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/benchmarks/result"
	"github.com/waybill-go/waybill/benchmarks/scenario"
)

// Markdown returns the tables of the page, with links to the plots in folder.
func Markdown(r *result.Result, folder string) string {
	var b strings.Builder
	writeMachine(&b, r)
	for _, s := range r.Scenarios {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n![%s](%s/%s.svg)\n\n", s.Title, s.About, s.Title, folder, s.Name)
		writeTable(&b, s)
		fmt.Fprintf(&b, "\n%s; %s. Load average %.1f before and %.1f after.\n", when(s), runs(s), s.Load[0], s.Load[1])
		writeLosses(&b, s)
		writeSpoiled(&b, s)
	}
	writeConfigurations(&b, r)
	return b.String()
}

// when returns the time at which a scenario was measured, and the revision.
func when(s result.Scenario) string {
	text := s.Begun.UTC().Format("2006-01-02 15:04 MST")
	if revision, changed := strings.CutSuffix(s.Revision, "+"); revision != "" {
		text += ", revision " + revision[:min(len(revision), 12)]
		if changed {
			text += " with changes"
		}
	}
	return text
}

func runs(s result.Scenario) string {
	most := 0
	for _, c := range s.Contenders {
		most = max(most, len(c.Runs))
	}
	if most == 1 {
		return "1 run"
	}
	return "median (minimum – maximum) of " + plural(most, "run")
}

// writeLosses writes the reason for the lost orders of contenders that are known to lose some.
func writeLosses(b *strings.Builder, s result.Scenario) {
	for _, c := range s.Contenders {
		if c.Lossy != "" && c.Total().Lost > 0 {
			fmt.Fprintf(b, "\n**%s loses orders**: %s.\n", c.Name, c.Lossy)
		}
	}
}

// writeSpoiled lists the spoiled runs.
func writeSpoiled(b *strings.Builder, s result.Scenario) {
	var list []string
	for _, c := range s.Contenders {
		for i, r := range c.Runs {
			if r.Spoiled != "" {
				list = append(list, fmt.Sprintf("%s, run %d: %s", c.Name, i+1, r.Spoiled))
			}
		}
	}
	if list != nil {
		fmt.Fprintf(b, "\n**Spoiled runs**, which no figure counts: %s.\n", strings.Join(list, "; "))
	}
}

func writeMachine(b *strings.Builder, r *result.Result) {
	m := r.Machine
	fmt.Fprintf(b, "| machine | |\n|---|---|\n| system | %s, %s |\n| processor | %s, %s |\n", m.System, m.Go, m.CPU, plural(m.Cores, "core"))
	if m.Memory > 0 {
		fmt.Fprintf(b, "| memory | %.0f GiB |\n", float64(m.Memory)/(1<<30))
	}
	var settings []string
	for _, name := range slices.Sorted(maps.Keys(m.Settings)) {
		settings = append(settings, name+"="+m.Settings[name])
	}
	fmt.Fprintf(b, "| PostgreSQL | %s; %s |\n", m.Postgres, strings.Join(settings, ", "))
	var modules []string
	for _, path := range slices.Sorted(maps.Keys(m.Modules)) {
		modules = append(modules, strings.TrimPrefix(path, "github.com/")+" "+m.Modules[path])
	}
	fmt.Fprintf(b, "| modules | %s |\n", strings.Join(modules, ", "))
}

func writeTable(b *strings.Builder, s result.Scenario) {
	b.WriteString("| |")
	for _, m := range s.Metrics {
		b.WriteString(" " + m.Title + " |")
	}
	b.WriteString(" finished in time | lost | repeated | out of order | arrived, not settled |\n|---|" + strings.Repeat("---:|", len(s.Metrics)+5) + "\n")
	for _, c := range s.Contenders {
		b.WriteString("| " + c.Name + " |")
		for i, m := range s.Metrics {
			b.WriteString(" " + cell(c, m, i == 0) + " |")
		}
		total := c.Total()
		b.WriteString(" " + yes(total.Complete) + " |")
		for _, n := range []int{total.Lost, total.Repeats, total.Swapped, total.Unsettled} {
			b.WriteString(" " + number(float64(n), 0) + " |")
		}
		b.WriteString("\n")
	}
}

// cell is the median of a metric; the first metric of a scenario is whole, with minimum and maximum.
func cell(c result.Contender, m scenario.Metric, whole bool) string {
	spread, ok := c.Spread(m.Key)
	switch {
	case !ok && len(c.Good()) == 0:
		return "spoiled"
	case !ok:
		return "–"
	case whole && len(c.Good()) == 1:
		return "**" + number(spread.Median, m.Decimals) + "**"
	case whole:
		return fmt.Sprintf("**%s** (%s – %s)", number(spread.Median, m.Decimals), number(spread.Min, m.Decimals), number(spread.Max, m.Decimals))
	default:
		return number(spread.Median, m.Decimals)
	}
}

func writeConfigurations(b *strings.Builder, r *result.Result) {
	b.WriteString("\n## Configurations\n\n| | |\n|---|---|\n")
	seen := make(map[[2]string]bool)
	for _, s := range r.Scenarios {
		for _, c := range s.Contenders {
			if row := [2]string{c.Name, c.Configuration}; !seen[row] {
				seen[row] = true
				fmt.Fprintf(b, "| %s | %s |\n", c.Name, c.Configuration)
			}
		}
	}
}

// number writes 12345.6 as 12,346.
func number(v float64, decimals int) string {
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	whole, rest, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if rest != "" {
		return whole + "." + rest
	}
	return whole
}

func yes(v bool) string {
	if v {
		return "yes"
	}
	return "no"
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
