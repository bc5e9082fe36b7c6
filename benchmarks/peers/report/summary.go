package report

import (
	"slices"
	"strings"

	"github.com/waybill-go/waybill/benchmarks/result"
)

// side is one side of the comparison, in all its configurations.
type side struct {
	name string
	// begins are the prefixes of its contenders' names.
	begins []string
}

var sides = []side{
	{"Waybill", []string{"Waybill"}},
	{"Watermill", []string{"Watermill"}},
	{"River", []string{"River"}},
	{"Textbook outbox", []string{"Textbook", "Plain table"}},
	{"Home-made SKIP LOCKED", []string{"Home-made", "Plain table"}},
}

// discipline is a column of the summary.
type discipline struct {
	scenario string
	keys     []string // of metrics; the first decides which contender of a side is the best
	title    string
	less     bool // less is better
}

var disciplines = []discipline{
	{"drain-nowhere", []string{"rate"}, "drain to nowhere, /s", false},
	{"drain-kafka", []string{"rate"}, "drain to Kafka, /s", false},
	{"drain-http", []string{"rate"}, "drain to HTTP, /s", false},
	{"latency", []string{"p50", "p99"}, "commit to sink, ms (less is better): p50 / p99", true},
	{"transactions", []string{"published"}, "publishing, transactions/s", false},
}

// of returns the figures of a side's best contender, or none if the side has no contender.
func (d discipline) of(s side, r *result.Result) (figures []float64) {
	for _, c := range d.contenders(r) {
		if !slices.ContainsFunc(s.begins, func(begin string) bool { return strings.HasPrefix(c.Name, begin) }) {
			continue
		}
		var own []float64
		for _, key := range d.keys {
			if m := c.Find(key); m != nil {
				own = append(own, m.Median)
			}
		}
		if len(own) == len(d.keys) && (figures == nil || d.better(own[0], figures[0])) {
			figures = own
		}
	}
	return figures
}

func (d discipline) contenders(r *result.Result) []result.Case {
	for _, s := range r.Scenarios {
		if s.Name == d.scenario {
			return s.Cases
		}
	}
	return nil
}

func (d discipline) better(a, b float64) bool { return a > b != d.less && a != b }

// isBest reports whether no side has a better figure at a place in keys.
func (d discipline) isBest(figure float64, place int, r *result.Result) bool {
	return !slices.ContainsFunc(sides, func(s side) bool {
		figures := d.of(s, r)
		return figures != nil && d.better(figures[place], figure)
	})
}

// Summary returns the first table of the page.
func Summary(r *result.Result) string {
	var b strings.Builder
	b.WriteString("| |")
	for _, d := range disciplines {
		b.WriteString(" " + d.title + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(disciplines)) + "\n")
	for _, s := range sides {
		b.WriteString("| " + s.name + " |")
		for _, d := range disciplines {
			b.WriteString(" " + d.cell(s, r) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// cell returns the figures of a side, the best ones in bold.
func (d discipline) cell(s side, r *result.Result) string {
	var texts []string
	for place, figure := range d.of(s, r) {
		text := result.Number(figure)
		if d.isBest(figure, place, r) {
			text = "**" + text + "**"
		}
		texts = append(texts, text)
	}
	if texts == nil {
		return "–"
	}
	return strings.Join(texts, " / ")
}
