// Package chart draws bars and lines as SVG that stands in a page itself: without
// scripts, fonts or other files, so that the page opens anywhere, also from a mail.
//
// The files in the order in which to read them: chart.go, what can be drawn;
// scale.go, from values to places; draw.go, from places to SVG; spark.go, lines
// without axes.
package chart

import "math"

// Chart is bars or lines over two axes. All its texts are escaped.
type Chart struct {
	Title string
	X, Y  Axis
	Bars  []Bars
	Lines []Line
}

// Axis is one side of a chart. One that is not logarithmic begins at 0, or below where
// values are negative.
type Axis struct {
	// Label says what is counted, or its unit.
	Label string
	// Names, of X only, are what stands at 0, 1, 2, … instead of numbers.
	Names []string
	// Log leaves out what is not above 0.
	Log bool
}

// Bars are of one colour. Their X are numbers of the axis' Names. The bars of several
// sets stand beside each other.
type Bars struct {
	Name   string // for the legend; "" for none
	Values []Point
}

// Line joins points in their order.
type Line struct {
	Name   string // for the legend; "" for none
	Points []Point
	// Dots marks each point.
	Dots bool
}

// Point is a value, and the least and the most of what it is the middle of; where
// these are equal no whisker is drawn.
type Point struct{ X, Y, Low, High float64 }

// colours are for bars and lines, in this order: told apart also by people who see
// colours otherwise (Okabe and Ito, "Color Universal Design", 2008).
var colours = []string{"#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"}

func colour(i int) string { return colours[i%len(colours)] }

// SVG is the chart as an svg element, which takes the width that the page gives it;
// "" where there is nothing to draw.
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

// drawable is the chart without what its axes have no place for. A set or line without
// points keeps its colour if another one behind it has some.
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

// within is the point with a whisker that the axis has room for.
func (p Point) within(y Axis) Point {
	if !y.holds(p.Low) || !y.holds(p.High) || p.Low >= p.High {
		p.Low, p.High = p.Y, p.Y
	}
	return p
}
