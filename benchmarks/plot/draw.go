package plot

import (
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/benchmarks/result"
)

// Sizes in pixels of a drawing at full width; the page scales it.
const (
	width      = 880.0
	height     = 340.0 // without further lines of legend
	border     = 12.0
	lineHeight = 17.0
	small      = 12.0 // size of text
	swatch     = 11.0
	tickLength = 5.0
)

// Colours of everything but rows and lines.
const (
	ink   = "#333"
	faint = "#666"
	grid  = "#e4e7eb"
	axis  = "#9aa1ab"
)

// drawing writes a chart as SVG.
type drawing struct {
	Chart
	x, y   scale
	legend [][]int // indexes of Lines, by line of the legend
	height float64
	text   strings.Builder
}

func newDrawing(c Chart) *drawing {
	d := &drawing{Chart: c, legend: c.named()}
	var xs, ys []float64
	for _, line := range c.Lines {
		for _, p := range line.Points {
			xs, ys = append(xs, p.X), append(ys, p.Y)
		}
	}
	if d.y = fromZero(ys); c.Y.Log {
		d.y = logarithmic(ys)
	}
	left := border + tickLength + 4
	widest := 0.0
	for _, label := range d.y.labels() {
		widest = max(widest, widthOf(label))
	}
	if d.x = fromZero(xs); c.X.Log {
		d.x = logarithmicAt(xs)
	} else {
		d.x.high = max(slices.Max(xs), d.x.low+1e-9)
	}
	d.x.from, d.x.to = left+widest, width-border-8
	lines := 1
	if c.X.Label != "" {
		lines++
	}
	top := border + float64(2+len(d.legend))*lineHeight + 16
	bottom := top + height - 4*lineHeight
	d.y.from, d.y.to = bottom, top
	d.height = bottom + tickLength + float64(lines)*lineHeight + border
	return d
}

// named returns the lines of the legend: what is drawn and has a name.
func (c Chart) named() (lines [][]int) {
	room := 0.0
	for i, line := range c.Lines {
		if line.Name == "" || len(line.Points) == 0 {
			continue
		}
		needed := swatch + 6 + widthOf(line.Name) + 20
		if len(lines) == 0 || needed > room {
			lines, room = append(lines, nil), width-2*border
		}
		lines[len(lines)-1] = append(lines[len(lines)-1], i)
		room -= needed
	}
	return lines
}

// write adds an element; numbers are written with one decimal.
func (d *drawing) write(format string, args ...any) { fmt.Fprintf(&d.text, format, args...) }

func (d *drawing) words(x, y float64, anchor, colour, more, text string) {
	d.write(`<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s"%s>%s</text>`, x, y, anchor, colour, more, html.EscapeString(text))
}

func (d *drawing) stroke(x1, y1, x2, y2 float64, colour string, thickness float64) {
	d.write(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%.1f"/>`, x1, y1, x2, y2, colour, thickness)
}

// head opens the element and writes the title and the legend, from the top.
func (d *drawing) head() {
	title := html.EscapeString(d.Title)
	d.write(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" style="background:#fff" role="img" aria-label="%s" font-family="system-ui, 'Segoe UI', Roboto, Arial, sans-serif" font-size="%.0f">`,
		width, d.height, title, small)
	d.words(border, border+12, "start", ink, ` font-size="15" font-weight="600"`, d.Title)
	y := border + 12.0
	for _, line := range d.legend {
		y += lineHeight + 2
		x := border
		for _, i := range line {
			d.stroke(x, y-4, x+swatch+3, y-4, colour(i), 3)
			x += swatch + 6
			d.words(x, y, "start", ink, "", d.Lines[i].Name)
			x += widthOf(d.Lines[i].Name) + 20
		}
	}
}

func (d *drawing) axes() {
	d.words(border, d.y.to-13, "start", faint, "", d.Y.Label)
	for i, label := range d.y.labels() {
		y := d.y.at(d.y.ticks[i])
		d.stroke(d.x.from, y, d.x.to, y, grid, 1)
		d.words(d.x.from-8, y+4, "end", faint, "", label)
	}
	base := d.y.from
	d.stroke(d.x.from, base, d.x.to, base, axis, 1)
	below := base + tickLength + 12
	free := 0.0 // from where there is room for a label
	for i, label := range d.x.labels() {
		x := d.x.at(d.x.ticks[i])
		if half := widthOf(label) / 2; x <= d.x.to+0.5 && x-half >= free {
			d.stroke(x, base, x, base+tickLength, axis, 1)
			d.words(x, below, "middle", faint, "", label)
			free = x + half + 8
		}
	}
	if d.X.Label != "" {
		d.words((d.x.from+d.x.to)/2, below+lineHeight, "middle", faint, "", d.X.Label)
	}
}

// line draws a line in colour i.
func (d *drawing) line(i int, line Line) {
	var points []byte
	for _, p := range line.Points {
		points = appendPoint(points, d.x.at(p.X), d.y.at(p.Y))
	}
	d.write(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2" stroke-linejoin="round"/>`, points, colour(i))
	if !line.Dots {
		return
	}
	for _, p := range line.Points {
		d.write(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"><title>%s</title></circle>`,
			d.x.at(p.X), d.y.at(p.Y), colour(i), html.EscapeString(line.Name+": "+result.Number(p.Y)))
	}
}

// widthOf estimates the width of a text, since the font is not known.
func widthOf(text string) float64 {
	total := 0.0
	for _, r := range text {
		switch {
		case strings.ContainsRune("ijl.,:;|'!()[] ", r):
			total += 0.32
		case r >= 'A' && r <= 'Z' || r == 'm' || r == 'w' || r > 0x2e80:
			total += 0.82
		default:
			total += 0.57
		}
	}
	return total * small
}

// appendPoint adds a point to those of a polyline.
func appendPoint(points []byte, x, y float64) []byte {
	if len(points) > 0 {
		points = append(points, ' ')
	}
	points = strconv.AppendFloat(points, x, 'f', 1, 64)
	points = append(points, ',')
	return strconv.AppendFloat(points, y, 'f', 1, 64)
}
