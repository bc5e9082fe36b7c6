// Package plot draws lines and rows as SVG to embed in a page: without scripts, fonts or other
// files, so that the page opens anywhere, even from a mail.
package plot

import (
	"math"
	"slices"
)

// Chart is lines over two axes. All its texts are escaped.
type Chart struct {
	Title string
	X, Y  Axis
	Lines []Line
}

// Axis is one side of a chart. Unless it is logarithmic, it begins at 0, or below if values are
// negative.
type Axis struct {
	// Label says what is counted, or its unit.
	Label string
	// Log makes the axis logarithmic; values that are not above 0 are left out.
	Log bool
}

// Line connects points in their order.
type Line struct {
	Name   string // for the legend; "" for none
	Points []Point
	// Dots marks each point.
	Dots bool
}

// Point is a point of a line, or a value of a Row.
type Point struct{ X, Y float64 }

// colours are the colours of rows and lines, in this order. People with colour vision deficiency
// can distinguish them too (Okabe and Ito, "Color Universal Design", 2008).
var colours = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"}

func colour(i int) string { return colours[i%len(colours)] }

// SVG returns the chart as an svg element that takes the full width of its container; "" if
// there is nothing to draw.
func (c Chart) SVG() string {
	c = c.drawable()
	if len(c.Lines) == 0 {
		return ""
	}
	d := newDrawing(c)
	d.head()
	d.axes()
	for i, line := range c.Lines {
		d.line(i, line)
	}
	d.text.WriteString("</svg>")
	return d.text.String()
}

// drawable returns the chart without points that its axes cannot show. A line without points keeps its
// colour if a later one has some.
func (c Chart) drawable() Chart {
	some := false
	lines := slices.Clone(c.Lines)
	for i, line := range lines {
		lines[i].Points = nil
		for _, p := range line.Points {
			if c.X.holds(p.X) && c.Y.holds(p.Y) {
				some = true
				lines[i].Points = append(lines[i].Points, p)
			}
		}
	}
	if c.Lines = lines; !some {
		c.Lines = nil
	}
	return c
}

func (a Axis) holds(v float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (!a.Log || v > 0)
}
