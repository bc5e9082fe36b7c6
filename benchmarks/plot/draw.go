package plot

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Sizes in pixels of a drawing at full width; the page scales it.
const (
	width      = 880.0
	height     = 340.0 // without further lines of legend and names
	border     = 12.0
	lineHeight = 17.0
	small      = 12.0 // size of text
	swatch     = 11.0
	tickLength = 5.0
)

// Colours of everything but bars and lines.
const (
	ink   = "#333"
	faint = "#666"
	grid  = "#e4e7eb"
	axis  = "#9aa1ab"
)

// halo separates a text from the lines behind it.
const halo = ` stroke="#fff" stroke-width="3" paint-order="stroke"`

// drawing writes a chart as SVG.
type drawing struct {
	Chart
	x, y   scale
	names  [][]string // of X, in lines
	legend [][]entry  // in lines
	height float64
	text   strings.Builder
}

// entry is an entry of the legend.
type entry struct {
	name   string
	colour string
	line   bool
}

func newDrawing(c Chart) *drawing {
	d := &drawing{Chart: c, legend: c.entries()}
	var xs, ys []float64
	for _, points := range c.points() {
		for _, p := range points {
			xs, ys = append(xs, p.X), append(ys, p.Y, p.Low, p.High)
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
	switch {
	case len(c.X.Names) > 0:
		d.x = scale{low: -0.5, high: float64(len(c.X.Names)) - 0.5}
	case c.X.Log:
		d.x = logarithmicAt(xs)
	default:
		d.x = fromZero(xs)
		d.x.high = max(slices.Max(xs), d.x.low+1e-9)
	}
	d.x.from, d.x.to = left+widest, width-border-8
	lines := 1
	for _, name := range c.X.Names {
		wrapped := wrap(name, (d.x.to-d.x.from)/float64(len(c.X.Names))-10)
		d.names = append(d.names, wrapped)
		lines = max(lines, len(wrapped))
	}
	if c.X.Label != "" {
		lines++
	}
	top := border + float64(2+len(d.legend))*lineHeight + 16
	bottom := top + height - 4*lineHeight
	d.y.from, d.y.to = bottom, top
	d.height = bottom + tickLength + float64(lines)*lineHeight + border
	return d
}

// points returns those of all bars and lines.
func (c Chart) points() (all [][]Point) {
	for _, set := range c.Bars {
		all = append(all, set.Values)
	}
	for _, line := range c.Lines {
		all = append(all, line.Points)
	}
	return all
}

// entries returns the lines of the legend: the names of what is drawn.
func (c Chart) entries() (lines [][]entry) {
	room := 0.0
	add := func(e entry, points []Point) {
		if e.name == "" || len(points) == 0 {
			return
		}
		needed := swatch + 6 + widthOf(e.name) + 20
		if len(lines) == 0 || needed > room {
			lines, room = append(lines, nil), width-2*border
		}
		lines[len(lines)-1] = append(lines[len(lines)-1], e)
		room -= needed
	}
	for i, set := range c.Bars {
		add(entry{set.Name, colour(i), false}, set.Values)
	}
	for i, line := range c.Lines {
		add(entry{line.Name, colour(len(c.Bars) + i), true}, line.Points)
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

// head opens the element and writes the title, the legend and the label of the vertical axis,
// from the top.
func (d *drawing) head() {
	title := html.EscapeString(d.Title)
	d.write(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" style="background:#fff" role="img" aria-label="%s" font-family="system-ui, 'Segoe UI', Roboto, Arial, sans-serif" font-size="%.0f">`,
		width, d.height, title, small)
	d.words(border, border+12, "start", ink, ` font-size="15" font-weight="600"`, d.Title)
	y := border + 12.0
	for _, line := range d.legend {
		y += lineHeight + 2
		x := border
		for _, e := range line {
			if e.line {
				d.stroke(x, y-4, x+swatch+3, y-4, e.colour, 3)
			} else {
				d.write(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2" fill="%s"/>`, x, y-swatch+1, swatch, swatch, e.colour)
			}
			x += swatch + 6
			d.words(x, y, "start", ink, "", e.name)
			x += widthOf(e.name) + 20
		}
	}
	d.words(border, d.y.to-13, "start", faint, "", d.Y.Label)
}

func (d *drawing) axes() {
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
	deepest := 1
	for i, lines := range d.names {
		for k, line := range lines {
			d.words(d.x.at(float64(i)), below+float64(k)*lineHeight, "middle", ink, "", line)
		}
		deepest = max(deepest, len(lines))
	}
	if d.X.Label != "" {
		d.words((d.x.from+d.x.to)/2, below+float64(deepest)*lineHeight, "middle", faint, "", d.X.Label)
	}
}

// Shares of a name's room: for all its bars, and of one bar in its part.
const (
	group = 0.72
	full  = 0.9
	// widest bounds the width of a bar if there are few.
	widest = 96.0
)

// bars draws set i.
func (d *drawing) bars(i int, set Bars) {
	n := float64(len(d.Bars))
	room := min((d.x.at(1)-d.x.at(0))*group/n, widest)
	thick := room * full
	for _, p := range set.Values {
		middle := d.x.at(p.X) + (float64(i)-(n-1)/2)*room
		zero, end := d.y.from, d.y.at(p.Y)
		if !d.Y.Log {
			zero = d.y.at(0)
		}
		d.write(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"><title>%s</title></rect>`,
			middle-thick/2, min(zero, end), thick, math.Abs(zero-end), colour(i), html.EscapeString(p.title(set.Name)))
		d.whisker(middle, p, ink)
		if figure := Number(p.Y); widthOf(figure) <= room {
			d.words(middle, min(zero, end, d.y.at(p.High))-5, "middle", ink, ` font-size="11"`+halo, figure)
		}
	}
}

// line draws a line in colour i.
func (d *drawing) line(i int, line Line) {
	var points []byte
	for _, p := range line.Points {
		points = appendPoint(points, d.x.at(p.X), d.y.at(p.Y))
	}
	d.write(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2" stroke-linejoin="round"/>`, points, colour(i))
	for _, p := range line.Points {
		d.whisker(d.x.at(p.X), p, colour(i))
		if line.Dots {
			d.write(`<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"><title>%s</title></circle>`, d.x.at(p.X), d.y.at(p.Y), colour(i), html.EscapeString(p.title(line.Name)))
		}
	}
}

// whisker draws a whisker from the lowest to the highest value.
func (d *drawing) whisker(x float64, p Point, colour string) {
	if p.Low == p.High {
		return
	}
	const cap = 4
	low, high := d.y.at(p.Low), d.y.at(p.High)
	d.write(`<path d="M%.1f %.1fh%d m%d 0V%.1f m%d 0h%d" fill="none" stroke="%s"/>`, x-cap, low, 2*cap, -cap, high, -cap, 2*cap, colour)
}

// title returns the text shown when the pointer is over the point.
func (p Point) title(name string) string {
	text := Number(p.Y)
	if p.Low != p.High {
		text += fmt.Sprintf(" (%s–%s)", Number(p.Low), Number(p.High))
	}
	if name != "" {
		text = name + ": " + text
	}
	return text
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

// mostLines of a name; a longer name ends with …
const mostLines = 3

// wrap breaks a text between words into lines of at most that width.
func wrap(text string, room float64) []string {
	var lines []string
	for _, word := range strings.Fields(text) {
		if n := len(lines); n > 0 && widthOf(lines[n-1]+" "+word) <= room {
			lines[n-1] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	if len(lines) > mostLines {
		lines = append(lines[:mostLines-1], strings.Join(lines[mostLines-1:], " "))
	}
	for i, line := range lines {
		runes := []rune(line)
		for len(runes) > 1 && widthOf(string(runes)) > room {
			runes = runes[:len(runes)-1]
		}
		if len(runes) < len([]rune(line)) {
			lines[i] = string(runes[:max(len(runes)-1, 1)]) + "…"
		}
	}
	return lines
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
