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
)

// Colours that are told apart also by people who see colours otherwise (Okabe and
// Ito, "Color Universal Design", 2008).
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
	margin    = 0.9 * vg.Inch
	thickness = 0.36 // half a bar, where rows are 1 apart
	room      = 1.22 // right of the longest bar, for its figure
)

// draw writes a bar for each contender's first metric, with its least and most.
// Times, which are better when small and range widely, are on a logarithmic scale.
func draw(s result.Scenario, path string) error {
	metric := s.Metrics[0]
	logarithmic := strings.Contains(metric.Title, "ms")
	p := newPlot(s.Title, metric.Title)
	contenders := slices.Clone(s.Contenders)
	slices.Reverse(contenders) // rows are counted from below
	rows := bars{p: p, origin: 0}
	most, least := 0.0, math.Inf(1)
	for _, c := range contenders {
		if spread, ok := c.Spread(metric.Key); ok {
			most, least = max(most, spread.Max), min(least, spread.Min)
		}
	}
	p.X.Min, p.X.Max = 0, max(most, 1e-9)*room
	if logarithmic {
		rows.origin = math.Pow(10, math.Floor(math.Log10(max(least, 0.01))))
		p.X.Min, p.X.Max = rows.origin, max(most, rows.origin)*4
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	names := make([]string, len(contenders))
	for i, c := range contenders {
		names[i] = c.Name
		if spread, ok := c.Spread(metric.Key); ok {
			if err := rows.add(float64(i), spread, colourOf(c.Name), number(spread.Median, metric.Decimals)); err != nil {
				return err
			}
		}
	}
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.6, float64(len(contenders))-0.4
	return save(p, vg.Length(len(contenders))*rowHeight+margin, path)
}

func colourOf(name string) color.Color {
	switch {
	case strings.HasPrefix(name, "Limit"):
		return limits
	case strings.Contains(name, "Waybill") || strings.Contains(name, "pending"):
		return ours
	default:
		return theirs
	}
}

func style(size vg.Length) text.Style {
	return text.Style{Color: ink, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}, Handler: plot.DefaultTextHandler}
}

func newPlot(title, x string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = white // pages may be dark
	p.Title.Text, p.X.Label.Text = title, x
	p.Title.TextStyle = style(13)
	p.Title.TextStyle.XAlign, p.Title.TextStyle.YAlign = plotdraw.XCenter, plotdraw.YTop
	p.Title.Padding = 8
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = style(10).Font
		axis.Tick.Label.Font = style(10).Font
		axis.LineStyle.Width, axis.Tick.LineStyle.Width = 0.5, 0.5
	}
	p.X.Tick.Marker = thousands{}
	return p
}

// thousands are the usual ticks, written with commas.
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

// bars adds lying bars to a plot.
type bars struct {
	p      *plot.Plot
	origin float64 // where they begin
}

func (b bars) add(row float64, s result.Spread, fill color.Color, label string) error {
	end := max(s.Median, b.origin)
	bar, err := plotter.NewPolygon(plotter.XYs{
		{X: b.origin, Y: row - thickness}, {X: end, Y: row - thickness}, {X: end, Y: row + thickness}, {X: b.origin, Y: row + thickness},
	})
	if err != nil {
		return err
	}
	bar.Color, bar.LineStyle.Width = fill, 0
	spread, err := plotter.NewLine(plotter.XYs{{X: max(s.Min, b.origin), Y: row}, {X: max(s.Max, b.origin), Y: row}})
	if err != nil {
		return err
	}
	spread.Color, spread.Width = ink, 1
	figure, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: max(s.Max, b.origin), Y: row}}, Labels: []string{label}})
	if err != nil {
		return err
	}
	figure.TextStyle[0] = style(10)
	figure.TextStyle[0].YAlign = plotdraw.YCenter
	figure.Offset.X = 5
	b.p.Add(bar, spread, figure)
	return nil
}

func save(p *plot.Plot, height vg.Length, path string) error {
	canvas := vgsvg.New(width, height)
	p.Draw(plotdraw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
