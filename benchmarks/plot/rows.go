package plot

import (
	"html"
	"slices"
)

// Rows is a chart with a line of text for each row, and a bar or points beside it.
type Rows struct {
	Title string
	X     Axis // without Names
	Rows  []Row
}

// Row is a name with what was measured of it.
type Row struct {
	Name string
	// Colour is the number of a colour; Grey is for what is no contender.
	Colour int
	// Points has one value, which is drawn as a bar with a whisker, or several, such as percentiles, which
	// are drawn as dots on a line. Only Y, Low and High count. A row without points has only its name.
	Points []Point
}

// Grey is the Colour of rows that are there for comparison.
const Grey = -1

func (r Row) colour() string {
	if r.Colour == Grey {
		return "#999999"
	}
	return colour(r.Colour)
}

const rowHeight = 30.0

// SVG returns the chart as an svg element; "" if there is nothing to draw.
func (r Rows) SVG() string {
	names, xs := 0.0, []float64(nil)
	for _, row := range r.Rows {
		names = max(names, widthOf(row.Name))
		for _, p := range row.Points {
			if r.X.holds(p.Y) {
				xs = append(xs, p.Y, p.within(r.X).High)
			}
		}
	}
	if len(xs) == 0 {
		return ""
	}
	d := &drawing{Chart: Chart{Title: r.Title}, height: 2*border + 3*lineHeight + float64(len(r.Rows))*rowHeight + lineHeight}
	if d.x = fromZero(xs); r.X.Log {
		d.x = logarithmic(xs)
	}
	const figures = 120 // room for figures behind the longest bar
	d.x.from, d.x.to = border+min(names, width/2)+10, width-figures
	top := border + 2*lineHeight
	d.y = scale{from: top, to: top - 2*lineHeight}
	bottom := top + float64(len(r.Rows))*rowHeight
	d.head()
	for i, label := range d.x.labels() {
		x := d.x.at(d.x.ticks[i])
		d.stroke(x, top, x, bottom, grid, 1)
		d.words(x, bottom+tickLength+12, "middle", faint, "", label)
	}
	d.words((d.x.from+d.x.to)/2, bottom+tickLength+12+lineHeight, "middle", faint, "", r.X.Label)
	for i, row := range r.Rows {
		d.row(row, r.X, top+(float64(i)+0.5)*rowHeight)
	}
	d.text.WriteString("</svg>")
	return d.text.String()
}

// row draws one row around a height.
func (d *drawing) row(r Row, axis Axis, y float64) {
	d.words(d.x.from-8, y+4, "end", ink, "", r.Name)
	points := slices.DeleteFunc(slices.Clone(r.Points), func(p Point) bool { return !axis.holds(p.Y) })
	if len(points) == 0 {
		return
	}
	last := points[len(points)-1]
	end, text := d.x.at(last.Y), Number(last.Y)
	if len(points) == 1 {
		const thick = 0.6 * rowHeight
		d.write(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s</title></rect>`,
			d.x.from, y-thick/2, max(end-d.x.from, 0), thick, r.colour(), html.EscapeString(r.Name+": "+text))
		if w := last.within(axis); w.Low < w.High {
			d.stroke(d.x.at(w.Low), y, d.x.at(w.High), y, ink, 1.2)
			end = d.x.at(w.High)
		}
	} else {
		text = Number(points[0].Y) + " … " + text
		d.stroke(d.x.at(points[0].Y), y, end, y, r.colour(), 1.5)
		for _, p := range points {
			d.write(`<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`, d.x.at(p.Y), y, r.colour())
		}
	}
	d.words(end+8, y+4, "start", ink, "", text)
}
