package report

import (
	"bytes"
	"image/color"
	"math"
	"os"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	plotdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/waybill-go/waybill/benchmarks/result"
	"github.com/waybill-go/waybill/benchmarks/scenario"
)

// Colours that people with colour blindness can distinguish (Okabe and Ito, "Color Universal
// Design", 2008).
var (
	ours   = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	theirs = color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	limits = color.RGBA{0x99, 0x99, 0x99, 0xff}
	ink    = color.Gray{0x33}
	white  = color.Gray{0xff}
)

const (
	width     = 9 * vg.Inch
	rowHeight = 0.32 * vg.Inch
	margin    = 0.95 * vg.Inch // for title and axis
	border    = 6
	thickness = 0.36 // half a bar, where rows are 1 apart
	room      = 1.22 // width of the plot relative to the longest bar, which leaves room for its figure
)

// draw writes one row for each contender: a bar for the median of its first metric, with minimum and
// maximum, or, for latencies, a point for each percentile on a logarithmic scale.
func draw(s result.Scenario, path string) error {
	contenders := slices.Clone(s.Contenders)
	slices.Reverse(contenders) // rows are numbered from the bottom
	names := make([]string, len(contenders))
	for i, c := range contenders {
		names[i] = c.Name
	}
	rows := addBars
	if strings.HasSuffix(s.Metrics[0].Title, ", ms") {
		rows = addPercentiles
	}
	p := newPlot(s.Title)
	if err := rows(p, s.Metrics, contenders); err != nil {
		return err
	}
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.6, float64(len(contenders))-0.4
	return save(p, vg.Length(len(contenders))*rowHeight+margin, path)
}

func addBars(p *plot.Plot, metrics []scenario.Metric, contenders []result.Contender) error {
	metric, most := metrics[0], 0.0
	for i, c := range contenders {
		s, ok := c.Spread(metric.Key)
		if !ok {
			continue
		}
		most = max(most, s.Max)
		row := float64(i)
		if err := addBar(p, row, 0, s.Median, colourOf(c.Name)); err != nil {
			return err
		}
		if err := addLine(p, row, s.Min, s.Max, ink); err != nil {
			return err
		}
		if err := addText(p, row, s.Max, number(s.Median, metric.Decimals)); err != nil {
			return err
		}
	}
	p.X.Label.Text, p.X.Min, p.X.Max = metric.Title, 0, max(most, 1e-9)*room
	return nil
}

// percentiles are the points of a row of latencies.
var percentiles = []string{"p50", "p95", "p99"}

func addPercentiles(p *plot.Plot, metrics []scenario.Metric, contenders []result.Contender) error {
	least, most := math.Inf(1), 0.0
	for i, c := range contenders {
		var points plotter.XYs
		for _, key := range percentiles {
			if s, ok := c.Spread(key); ok && s.Median > 0 {
				points = append(points, plotter.XY{X: s.Median, Y: float64(i)})
				least, most = min(least, s.Median), max(most, s.Median)
			}
		}
		if len(points) == 0 {
			continue
		}
		first, last := points[0].X, points[len(points)-1].X
		dots, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		dots.Color, dots.Shape, dots.Radius = colourOf(c.Name), plotdraw.CircleGlyph{}, 4
		if err := addLine(p, float64(i), first, last, colourOf(c.Name)); err != nil {
			return err
		}
		p.Add(dots)
		if err := addText(p, float64(i), last, number(first, metrics[0].Decimals)+" … "+number(last, metrics[0].Decimals)); err != nil {
			return err
		}
	}
	if most == 0 {
		least, most = 1, 1
	}
	p.X.Label.Text = "ms: " + strings.Join(percentiles, ", ")
	p.X.Min, p.X.Max = math.Pow(10, math.Floor(math.Log10(least))), most*8
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	return nil
}

func addLine(p *plot.Plot, row, from, to float64, c color.Color) error {
	line, err := plotter.NewLine(plotter.XYs{{X: from, Y: row}, {X: to, Y: row}})
	if err != nil {
		return err
	}
	line.Color, line.Width = c, 1.2
	p.Add(line)
	return nil
}

func addText(p *plot.Plot, row, x float64, words string) error {
	label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: x, Y: row}}, Labels: []string{words}})
	if err != nil {
		return err
	}
	label.TextStyle[0] = style(10)
	label.TextStyle[0].YAlign = plotdraw.YCenter
	label.Offset.X = 7
	p.Add(label)
	return nil
}

func colourOf(name string) color.Color {
	switch {
	case strings.HasPrefix(name, "Limit"):
		return limits
	case strings.Contains(name, "Waybill"):
		return ours
	default:
		return theirs
	}
}

func style(size vg.Length) text.Style {
	return text.Style{Color: ink, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}, Handler: plot.DefaultTextHandler}
}

func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = white // pages may be dark
	p.Title.Text = title
	p.Title.TextStyle = style(13)
	p.Title.TextStyle.XAlign, p.Title.TextStyle.YAlign = plotdraw.XCenter, plotdraw.YTop
	p.Title.Padding = 8
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = style(10).Font
		axis.Tick.Label.Font = style(10).Font
		axis.Width, axis.Tick.Width = 0.5, 0.5
	}
	p.X.Tick.Marker = thousands{}
	return p
}

// thousands are the default ticks, with commas.
type thousands struct{}

func (thousands) Ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" && high >= 1000 {
			ticks[i].Label = number(ticks[i].Value, 0)
		}
	}
	return ticks
}

func save(p *plot.Plot, height vg.Length, path string) error {
	canvas := newCanvas(height)
	p.Draw(plotdraw.Crop(plotdraw.New(canvas), border, -border, border, -border))
	return write(canvas, path)
}

func newCanvas(height vg.Length) *vgsvg.Canvas { return vgsvg.New(width, height) }

func write(canvas *vgsvg.Canvas, path string) error {
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(path, bytes.ReplaceAll(b.Bytes(), []byte(typeface), []byte(typeface+alternatives)), 0o644)
}

// The text was measured in Liberation Sans. The alternatives have its widths; in a wider font, bars would
// cover the ends of their names.
const (
	typeface     = "font-family:Liberation Sans"
	alternatives = ",Arial,Helvetica,sans-serif"
)
