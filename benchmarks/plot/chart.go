// Package plot draws bars and lines as SVG to embed in a page: without scripts, fonts or other
// files, so that the page opens anywhere, even from a mail.
package plot

import "math"

// Chart is bars or lines over two axes. All its texts are escaped.
type Chart struct {
	Title string
	X, Y  Axis
	Bars  []Bars
	Lines []Line
}

// Axis is one side of a chart. Unless it is logarithmic, it begins at 0, or below if values are
// negative.
type Axis struct {
	// Label says what is counted, or its unit.
	Label string
	// Names, for X only, are shown at 0, 1, 2, … instead of numbers.
	Names []string
	// Log makes the axis logarithmic; values that are not above 0 are left out.
	Log bool
}

// Bars are bars of one colour. Their X are indexes of the axis' Names. The bars of several sets
// are drawn beside each other.
type Bars struct {
	Name   string // for the legend; "" for none
	Values []Point
}

// Line connects points in their order.
type Line struct {
	Name   string // for the legend; "" for none
	Points []Point
	// Dots marks each point.
	Dots bool
}

// Point is a value with the lowest and highest value of a range, drawn as a whisker if they
// differ.
type Point struct{ X, Y, Low, High float64 }

// colours are the colours of bars and lines, in this order. People with colour vision deficiency
// can distinguish them too (Okabe and Ito, "Color Universal Design", 2008).
var colours = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"}

func colour(i int) string { return colours[i%len(colours)] }

// SVG returns the chart as an svg element that takes the full width of its container; "" if
// there is nothing to draw.
func (c Chart) SVG() string {
	c = c.drawable()
	if len(c.Bars)+len(c.Lines) == 0 {
		return ""
	}
	d := newDrawing(c)
	d.head()
	d.axes()
	for i, set := range c.Bars {
		d.bars(i, set)
	}
	for i, line := range c.Lines {
		d.line(len(c.Bars)+i, line)
	}
	d.text.WriteString("</svg>")
	return d.text.String()
}

// drawable returns the chart without points that its axes cannot show. A set or line without
// points keeps its colour if a later one has some.
func (c Chart) drawable() Chart {
	some := 0
	only := func(points []Point) (kept []Point) {
		for _, p := range points {
			if c.X.holds(p.X) && c.Y.holds(p.Y) && (len(c.X.Names) == 0 || p.X >= 0 && int(p.X) < len(c.X.Names)) {
				kept = append(kept, p.within(c.Y))
			}
		}
		some += len(kept)
		return kept
	}
	bars, lines := make([]Bars, len(c.Bars)), make([]Line, len(c.Lines))
	for i, set := range c.Bars {
		bars[i] = Bars{set.Name, only(set.Values)}
	}
	for i, line := range c.Lines {
		lines[i] = Line{line.Name, only(line.Points), line.Dots}
	}
	c.Bars, c.Lines = bars, lines
	if some == 0 {
		c.Bars, c.Lines = nil, nil
	}
	return c
}

func (a Axis) holds(v float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (!a.Log || v > 0)
}

// within returns the point with its whisker cut to what the axis can show.
func (p Point) within(axis Axis) Point {
	if !axis.holds(p.Low) || !axis.holds(p.High) || p.Low >= p.High {
		p.Low, p.High = p.Y, p.Y
	}
	return p
}
