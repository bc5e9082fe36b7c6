package report

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	plotdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/waybill-go/waybill/benchmarks/result"
)

const summaryName = "summary"

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
	panel    string // title in the picture; "": not in the picture
	decimals int
	less     bool // less is better
}

var disciplines = []discipline{
	{"drain-nowhere", []string{"rate"}, "drain to nowhere, /s", "drain, deliveries/s", 0, false},
	{"drain-kafka", []string{"rate"}, "drain to Kafka, /s", "drain to Kafka, deliveries/s", 0, false},
	{"drain-http", []string{"rate"}, "drain to HTTP, /s", "", 0, false},
	{"latency", []string{"p50", "p99"}, "commit to sink, ms (less is better): p50 / p99", "commit to sink, ms: less is better", 1, true},
	{"transactions", []string{"published"}, "publishing, transactions/s", "publishing, transactions/s", 0, false},
}

// of returns the figures of a side's best contender, or none if the side has no contender.
func (d discipline) of(s side, r *result.Result) (figures []float64) {
	for _, c := range d.contenders(r) {
		if !slices.ContainsFunc(s.begins, func(begin string) bool { return strings.HasPrefix(c.Name, begin) }) {
			continue
		}
		var own []float64
		for _, key := range d.keys {
			if spread, ok := c.Spread(key); ok {
				own = append(own, spread.Median)
			}
		}
		if len(own) == len(d.keys) && (figures == nil || d.better(own[0], figures[0])) {
			figures = own
		}
	}
	return figures
}

func (d discipline) contenders(r *result.Result) []result.Contender {
	for _, s := range r.Scenarios {
		if s.Name == d.scenario {
			return s.Contenders
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

// Summary returns the first table of the page, with its picture.
func Summary(r *result.Result, folder string) string {
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
	fmt.Fprintf(&b, "\n![Waybill and its peers, on logarithmic scales](%s/%s.svg)\n", folder, summaryName)
	return b.String()
}

// cell returns the figures of a side, the best ones in bold.
func (d discipline) cell(s side, r *result.Result) string {
	var texts []string
	for place, figure := range d.of(s, r) {
		text := number(figure, d.decimals)
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

const (
	panelHeight = 2.3 * vg.Inch
	namesWidth  = 1.75 * vg.Inch // left of the first panel's bars
)

// drawSummary draws a panel of bars for each discipline, one beside the other.
func drawSummary(r *result.Result, path string) error {
	var panels []*plot.Plot
	for _, d := range disciplines {
		if d.panel == "" {
			continue
		}
		p, err := d.draw(r, len(panels) == 0)
		if err != nil {
			return err
		}
		panels = append(panels, p)
	}
	canvas := vgsvg.New(summaryWidth, panelHeight)
	all := plotdraw.New(canvas)
	each := (summaryWidth - namesWidth) / vg.Length(len(panels))
	for i, p := range panels {
		left := namesWidth + vg.Length(i)*each
		if i == 0 {
			left = 0
		}
		right := summaryWidth - namesWidth - vg.Length(i+1)*each
		p.Draw(plotdraw.Crop(all, left+border, -right-border, border, -border))
	}
	return write(canvas, path)
}

const summaryWidth = 12 * vg.Inch

// draw returns a panel, with the names of the sides if names is set.
func (d discipline) draw(r *result.Result, names bool) (*plot.Plot, error) {
	p := newPlot(d.panel)
	p.Title.TextStyle.Font.Size = 11
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, decades{}
	least, most := math.Inf(1), 0.0
	for _, s := range sides {
		if figures := d.of(s, r); figures != nil && figures[0] > 0 {
			least, most = min(least, figures[0]), max(most, figures[0])
		}
	}
	if most == 0 {
		least, most = 1, 1
	}
	p.X.Min, p.X.Max = math.Pow(10, math.Floor(math.Log10(least/2))), most*10 // so that the shortest bar is visible too
	var labels []string
	for i := range sides {
		s := sides[len(sides)-1-i] // rows are numbered from the bottom
		labels = append(labels, "")
		if names {
			labels[i] = s.name
		}
		figures := d.of(s, r)
		if figures == nil || figures[0] <= 0 {
			continue
		}
		c := color.Color(theirs)
		if s.name == sides[0].name {
			c = ours
		}
		if err := addBar(p, float64(i), p.X.Min, figures[0], c); err != nil {
			return nil, err
		}
		if err := addText(p, float64(i), figures[0], number(figures[0], d.decimals)); err != nil {
			return nil, err
		}
	}
	p.NominalY(labels...)
	p.Y.Min, p.Y.Max = -0.6, float64(len(sides))-0.4
	return p, nil
}

// decades are ticks at 1, 10, 100, 1k.
type decades struct{}

func (decades) Ticks(low, high float64) (ticks []plot.Tick) {
	for at := math.Pow(10, math.Floor(math.Log10(low))); at <= high; at *= 10 {
		value, unit := at, ""
		switch {
		case at >= 1e6:
			value, unit = at/1e6, "M"
		case at >= 1e3:
			value, unit = at/1e3, "k"
		}
		decimals := max(0, -int(math.Round(math.Log10(value))))
		ticks = append(ticks, plot.Tick{Value: at, Label: number(value, decimals) + unit})
	}
	return ticks
}

// addBar draws a row's bar.
func addBar(p *plot.Plot, row, from, to float64, c color.Color) error {
	bar, err := plotter.NewPolygon(plotter.XYs{
		{X: from, Y: row - thickness}, {X: to, Y: row - thickness}, {X: to, Y: row + thickness}, {X: from, Y: row + thickness},
	})
	if err != nil {
		return err
	}
	bar.Color, bar.Width = c, 0
	p.Add(bar)
	return nil
}
