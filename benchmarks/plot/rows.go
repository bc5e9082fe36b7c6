package plot

import (
	"cmp"
	"html"
	"strings"

	"github.com/waybill-go/waybill/benchmarks/result"
)

// Grey is the number of a colour for rows that are there for comparison.
const Grey = -1

const rowHeight = 30.0

// Rows returns a chart as an svg element: a row for each case, with its name and a bar for the median of the
// quantity, from the lowest to the highest run. For several quantities, such as percentiles, it has a dot for
// each on a logarithmic scale. colourOf returns the number of a case's colour. If no case has one of the
// quantities, there is nothing to draw, and the chart is "".
func Rows(title string, cases []result.Case, colourOf func(name string) int, of ...result.Quantity) string {
	x := Axis{Label: cmp.Or(of[0].Title, of[0].Unit), Log: len(of) > 1}
	if x.Log {
		names := make([]string, len(of))
		for i, q := range of {
			names[i] = q.Name
		}
		x.Label = of[0].Unit + ": " + strings.Join(names, ", ")
	}
	names, xs := 0.0, []float64(nil)
	for _, c := range cases {
		names = max(names, widthOf(c.Name))
		for _, m := range shown(c, x, of) {
			xs = append(xs, m.Median)
			if !x.Log {
				xs = append(xs, m.Max)
			}
		}
	}
	if len(xs) == 0 {
		return ""
	}
	d := &drawing{Chart: Chart{Title: title}, height: 2*border + 4*lineHeight + float64(len(cases))*rowHeight}
	if d.x = fromZero(xs); x.Log {
		d.x = logarithmic(xs)
	}
	const figures = 120 // room for figures behind the longest bar
	d.x.from, d.x.to = border+min(names, width/2)+10, width-figures
	top := border + 2*lineHeight
	bottom := top + float64(len(cases))*rowHeight
	d.head()
	for i, label := range d.x.labels() {
		at := d.x.at(d.x.ticks[i])
		d.stroke(at, top, at, bottom, grid, 1)
		d.words(at, bottom+tickLength+12, "middle", faint, "", label)
	}
	d.words((d.x.from+d.x.to)/2, bottom+tickLength+12+lineHeight, "middle", faint, "", x.Label)
	for i, c := range cases {
		y := top + (float64(i)+0.5)*rowHeight
		d.words(d.x.from-8, y+4, "end", ink, "", c.Name)
		d.row(c.Name, shown(c, x, of), rowColour(colourOf(c.Name)), y)
	}
	d.text.WriteString("</svg>")
	return d.text.String()
}

func rowColour(n int) string {
	if n == Grey {
		return "#999999"
	}
	return colour(n)
}

// shown returns the metrics of a case that the axis can show.
func shown(c result.Case, x Axis, of []result.Quantity) (list []*result.Metric) {
	for _, q := range of {
		if m := c.Find(q.Name); m != nil && x.holds(m.Median) {
			list = append(list, m)
		}
	}
	return list
}

// row draws the metrics of one row around a height.
func (d *drawing) row(name string, metrics []*result.Metric, colour string, y float64) {
	if len(metrics) == 0 {
		return
	}
	last := metrics[len(metrics)-1]
	end, text := d.x.at(last.Median), result.Number(last.Median)
	if d.x.log {
		first := metrics[0].Median
		text = result.Number(first) + " … " + text
		d.stroke(d.x.at(first), y, end, y, colour, 1.5)
		for _, m := range metrics {
			d.write(`<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`, d.x.at(m.Median), y, colour)
		}
	} else {
		const thick = 0.6 * rowHeight
		d.write(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s</title></rect>`,
			d.x.from, y-thick/2, end-d.x.from, thick, colour, html.EscapeString(name+": "+text))
		if last.Min < last.Max {
			d.stroke(d.x.at(last.Min), y, d.x.at(last.Max), y, ink, 1.2)
			end = d.x.at(last.Max)
		}
	}
	d.words(end+8, y+4, "start", ink, "", text)
}
