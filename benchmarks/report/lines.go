package report

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	plotdraw "gonum.org/v1/plot/vg/draw"
)

// Lines is a plot of lines. Each axis is linear and starts at 0, or is logarithmic.
type Lines struct {
	Title          string
	X, Y           string // what the axes count, with its unit
	LogX, LogY     bool
	Lines          []Line
	LeastY, MostY  float64 // limits of the Y axis; 0: as the lines need it
	WithoutMarkers bool    // for many points
}

// Line joins points. A logarithmic axis cannot show 0 or less. A line without points is not drawn,
// and its colour is not used for another line.
type Line struct {
	Name   string
	Points []Point
	Dashed bool
}

// Point is a point of a Line.
type Point struct{ X, Y float64 }

// palette has the colours of Okabe and Ito, like ours and theirs.
var palette = []color.RGBA{
	ours, theirs, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff}, {0x56, 0xb4, 0xe9, 0xff}, {0xd5, 0x5e, 0x00, 0xff},
}

const (
	linesHeight = 4.2 * vg.Inch
	lineWidth   = 1.8
	// legendRoom is the width of the legend, right of the lines.
	legendRoom = 2.2 * vg.Inch
)

// DrawLines writes a plot to a file as SVG.
func DrawLines(l Lines, path string) error {
	p := newPlot(l.Title)
	p.X.Label.Text, p.Y.Label.Text = l.X, l.Y
	p.Y.Tick.Marker = thousands{}
	p.Add(plotter.NewGrid())
	p.Legend.TextStyle = style(10)
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding, p.Legend.XOffs = 3, 8
	low, high := Point{math.Inf(1), math.Inf(1)}, Point{math.Inf(-1), math.Inf(-1)}
	for i, line := range l.Lines {
		if len(line.Points) == 0 {
			continue
		}
		points := make(plotter.XYs, 0, len(line.Points))
		for _, at := range line.Points {
			if l.LogX && at.X <= 0 || l.LogY && at.Y <= 0 {
				return fmt.Errorf("%s, %s: a logarithmic axis has no place for (%g, %g)", l.Title, line.Name, at.X, at.Y)
			}
			points = append(points, plotter.XY{X: at.X, Y: at.Y})
			low, high = Point{min(low.X, at.X), min(low.Y, at.Y)}, Point{max(high.X, at.X), max(high.Y, at.Y)}
		}
		drawn, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", l.Title, line.Name, err)
		}
		drawn.Color, drawn.Width = palette[i%len(palette)], lineWidth
		if line.Dashed {
			drawn.Dashes = []vg.Length{6, 5}
		}
		dots.Color, dots.Shape, dots.Radius = drawn.Color, plotdraw.CircleGlyph{}, 3
		p.Add(drawn)
		if !l.WithoutMarkers {
			p.Add(dots)
		}
		p.Legend.Add(line.Name, drawn)
	}
	if math.IsInf(high.X, -1) {
		return fmt.Errorf("%s: there are no points", l.Title)
	}
	span(&p.X, low.X, high.X, l.LogX)
	span(&p.Y, low.Y, high.Y, l.LogY)
	if l.LeastY > 0 {
		p.Y.Min = l.LeastY
	}
	if l.MostY > 0 {
		p.Y.Max = l.MostY
	}
	return saveLines(p, path)
}

// span sets what an axis shows.
func span(axis *plot.Axis, low, high float64, logarithmic bool) {
	if logarithmic {
		axis.Scale, axis.Tick.Marker = plot.LogScale{}, powers{}
		axis.Min, axis.Max = math.Pow(10, math.Floor(math.Log10(low))), math.Pow(10, math.Ceil(math.Log10(high)))
		if axis.Min == axis.Max {
			axis.Max *= 10
		}
		return
	}
	axis.Min, axis.Max = min(0, low), high*1.05
	if axis.Max <= axis.Min {
		axis.Max = axis.Min + 1
	}
}

// powers are ticks of a logarithmic axis, written with commas.
type powers struct{}

func (powers) Ticks(low, high float64) []plot.Tick {
	ticks := plot.LogTicks{Prec: -1}.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" && ticks[i].Value >= 1000 {
			ticks[i].Label = number(ticks[i].Value, 0)
		}
	}
	return ticks
}

// saveLines puts the legend beside the lines.
func saveLines(p *plot.Plot, path string) error {
	legend := p.Legend
	p.Legend = plot.NewLegend()
	canvas := newCanvas(linesHeight)
	whole := plotdraw.Crop(plotdraw.New(canvas), border, -border, border, -border)
	p.Draw(plotdraw.Crop(whole, 0, -legendRoom, 0, 0))
	legend.Draw(plotdraw.Crop(whole, width-legendRoom-border, 0, 0, -0.35*vg.Inch))
	return write(canvas, path)
}
