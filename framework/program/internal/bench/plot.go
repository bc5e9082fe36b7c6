package bench

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// palette is for lines and bars, in this order: told apart also by people who see
// colours otherwise (Okabe and Ito, "Color Universal Design", 2008).
var palette = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0x56, 0xb4, 0xe9, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff},
}

var (
	ink  = color.Gray{0x33}
	grid = color.Gray{0xe0}
)

func colour(i int) color.Color { return palette[i%len(palette)] }

// Sizes of a plot; the page scales it.
const (
	plotWidth  = 9 * vg.Inch
	plotHeight = 3.4 * vg.Inch
)

// newPlot is an empty plot with a title and the units of its axes.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	face := func(size float64) text.Style {
		return text.Style{Color: ink, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Length(size)}, Handler: plot.DefaultTextHandler}
	}
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle = face(13)
	p.Title.TextStyle.XAlign, p.Title.TextStyle.YAlign, p.Title.Padding = draw.XCenter, draw.YTop, 8
	p.Legend.TextStyle = face(10)
	p.Legend.TextStyle.YAlign = draw.YCenter
	p.Legend.Top, p.Legend.Padding = true, 9
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font, axis.Label.TextStyle.Color = face(10).Font, ink
		axis.Tick.Label.Font, axis.Tick.Label.Color = face(9).Font, ink
		axis.Color, axis.Tick.Color = color.Gray{0x99}, color.Gray{0x99}
		axis.Width, axis.Tick.Width = 0.6, 0.6
		axis.Tick.Marker = commaTicks{}
	}
	return p
}

// commaTicks are the usual ticks, written with commas.
type commaTicks struct{}

func (commaTicks) Ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = tickText(ticks[i].Value)
		}
	}
	return ticks
}

// logTicks are ticks at 1, 2 and 5 of each power of ten, written with commas.
type logTicks struct{}

func (logTicks) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
		for _, step := range []float64{1, 2, 5} {
			if at := power * step; at >= low*0.999 && at <= high*1.001 {
				ticks = append(ticks, plot.Tick{Value: at, Label: tickText(at)})
			}
		}
	}
	return ticks
}

func tickText(v float64) string {
	if math.Abs(v) >= 1000 {
		return count(int64(math.Round(v)))
	}
	return fmt.Sprintf("%.3g", v)
}

// spread is a value with the least and the most of its runs.
type spread struct{ x, value, low, high float64 }

// spreads are points with bars from the least to the most.
type spreads []spread

func (s spreads) Len() int                { return len(s) }
func (s spreads) XY(i int) (x, y float64) { return s[i].x, s[i].value }
func (s spreads) YError(i int) (low, high float64) {
	return s[i].value - s[i].low, s[i].high - s[i].value
}

func spreadOf(x float64, m *Metric) spread { return spread{x, m.Median, m.Min, m.Max} }

// addBars draws one bar for each value, with its spread. They stand around the
// whole numbers of the axis: those of set i of n beside each other.
func addBars(p *plot.Plot, name string, values spreads, i, n int) error {
	const group = 0.78 // share of the room that bars take
	width := group / float64(n)
	for k := range values {
		values[k].x += (float64(i) - float64(n-1)/2) * width
	}
	for _, v := range values {
		bar, err := plotter.NewPolygon(plotter.XYs{
			{X: v.x - width*0.46, Y: 0}, {X: v.x - width*0.46, Y: v.value}, {X: v.x + width*0.46, Y: v.value}, {X: v.x + width*0.46, Y: 0},
		})
		if err != nil {
			return err
		}
		bar.Color, bar.Width = colour(i), 0
		p.Add(bar)
	}
	if err := addErrorBars(p, values, ink); err != nil {
		return err
	}
	if name != "" {
		p.Legend.Add(name, swatch{colour(i)})
	}
	return nil
}

func addErrorBars(p *plot.Plot, values spreads, c color.Color) error {
	bars, err := plotter.NewYErrorBars(values)
	if err != nil {
		return err
	}
	bars.Color, bars.Width, bars.CapWidth = c, 0.8, 5
	p.Add(bars)
	return nil
}

// addLine draws a line with points; their spreads are bars.
func addLine(p *plot.Plot, name string, values spreads, i int) error {
	line, points, err := plotter.NewLinePoints(values)
	if err != nil {
		return err
	}
	line.Color, line.Width = colour(i), 1.6
	points.Color, points.Shape, points.Radius = colour(i), draw.CircleGlyph{}, 2.6
	p.Add(line, points)
	if name != "" {
		p.Legend.Add(name, line)
	}
	return addErrorBars(p, values, colour(i))
}

// addCurve draws a line over time.
func addCurve(p *plot.Plot, name string, points []Point, i int) error {
	xys := make(plotter.XYs, len(points))
	for k, at := range points {
		xys[k] = plotter.XY{X: at.Seconds, Y: at.Value}
	}
	line, err := plotter.NewLine(xys)
	if err != nil {
		return err
	}
	line.Color, line.Width = colour(i), 1.4
	p.Add(line)
	p.Legend.Add(name, line)
	return nil
}

// swatch is a filled box in a legend.
type swatch struct{ color.Color }

func (s swatch) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(s.Color, []vg.Point{{X: c.Min.X, Y: c.Min.Y}, {X: c.Min.X, Y: c.Max.Y}, {X: c.Max.X, Y: c.Max.Y}, {X: c.Max.X, Y: c.Min.Y}})
}

// addGrid draws lines at the ticks of the upright axis; what is added later is in
// front of them.
func addGrid(p *plot.Plot) {
	g := plotter.NewGrid()
	g.Horizontal.Color, g.Vertical.Color = grid, color.Transparent
	g.Horizontal.Width = 0.5
	p.Add(g)
}

// render makes an image that stands in the page itself.
func render(p *plot.Plot) (template.HTML, error) {
	canvas := vgsvg.New(plotWidth, plotHeight)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", fmt.Errorf("draw %s: %w", p.Title.Text, err)
	}
	svg := b.String()
	start := strings.Index(svg, "<svg")
	return template.HTML(svg[start:]), nil // gonum escapes the texts in it
}
