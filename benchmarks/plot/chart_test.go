package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/benchmarks/result"
)

// drawn has the elements of a drawing by name, with their attributes and text.
type drawn map[string][]map[string]string

// parse parses a drawing as XML.
func parse(t require.TestingT, svg string) drawn {
	found := make(drawn)
	decoder := xml.NewDecoder(strings.NewReader(svg))
	var open []map[string]string
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err, svg)
		switch token := token.(type) {
		case xml.StartElement:
			element := make(map[string]string)
			for _, a := range token.Attr {
				element[a.Name.Local] = a.Value
			}
			found[token.Name.Local] = append(found[token.Name.Local], element)
			open = append(open, element)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			open[len(open)-1]["text"] += string(token)
		}
	}
}

// texts returns the texts of a drawing.
func (d drawn) texts() (all []string) {
	for _, element := range d["text"] {
		all = append(all, element["text"])
	}
	return all
}

func float(t require.TestingT, text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return v
}

func TestALogarithmicAxisOmitsValuesThatItCannotShow(t *testing.T) {
	t.Parallel()
	c := Chart{X: Axis{Log: true}, Y: Axis{Log: true}, Lines: []Line{{"a", []Point{
		{1, 0}, {-1, 5}, {1, 1}, {4, 10}, {16, 100}, {64, math.Inf(1)}, {256, math.NaN()},
	}, true}}}
	d := parse(t, c.SVG())
	points := strings.Fields(d["polyline"][0]["points"])
	require.Len(t, points, 3)
	require.Len(t, d["circle"], 3)
	y := func(i int) float64 { return float(t, d["circle"][i]["cy"]) }
	x := func(i int) float64 { return float(t, d["circle"][i]["cx"]) }
	require.InDelta(t, y(0)-y(1), y(1)-y(2), 0.2, "ticks are ten times apart")
	require.InDelta(t, x(1)-x(0), x(2)-x(1), 0.2)
	require.Subset(t, d.texts(), []string{"1", "4", "16"}, "the values themselves are ticks")
}

func TestAnEmptyChartHasNoDrawing(t *testing.T) {
	t.Parallel()
	require.Empty(t, Chart{Title: "Lag"}.SVG())
	require.Empty(t, Chart{Lines: []Line{{Name: "lag"}}}.SVG())
	require.Empty(t, Chart{Y: Axis{Log: true}, Lines: []Line{{"lag", []Point{{0, 0}}, false}}}.SVG())
}

func TestTicksOfAxes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		labels []string
	}{
		{[]float64{0}, []string{"0.0", "0.2", "0.4", "0.6", "0.8", "1.0"}},
		{[]float64{97}, []string{"0", "20", "40", "60", "80", "100", "120"}},
		{[]float64{176_043}, []string{"0", "50,000", "100,000", "150,000", "200,000"}},
		{[]float64{0.013}, []string{"0.000", "0.005", "0.010", "0.015"}},
		{[]float64{-3, 9}, []string{"-5", "0", "5", "10"}},
	} {
		s := fromZero(c.values)
		require.Equal(t, c.labels, s.labels(), "%v", c.values)
	}
	for _, c := range []struct {
		values []float64
		labels []string
	}{
		{[]float64{5}, []string{"5", "10"}},
		{[]float64{0.3, 42}, []string{"0.2", "0.5", "1", "2", "5", "10", "20", "50"}},
		{[]float64{1, 1_000_000}, []string{"1", "10", "100", "1,000", "10,000", "100,000", "1,000,000"}},
	} {
		s := logarithmic(c.values)
		require.Equal(t, c.labels, s.labels(), "%v", c.values)
	}
}

// For charts with any values and names, the drawing must be XML, with all elements inside it.
func TestAllElementsAreInsideTheDrawing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.Float64Range(0, 1e9), rapid.Float64Range(-50, 50), rapid.Just(0.0), rapid.Just(math.NaN()), rapid.Float64Range(1e-6, 1e-3))
		word := rapid.StringN(0, 40, -1).Filter(func(s string) bool {
			return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0xfffe || r == 0xffff })
		})
		points := func() (all []Point) {
			for x := range rapid.IntRange(0, 12).Draw(t, "points") {
				all = append(all, Point{float64(x), value.Draw(t, "y")})
			}
			return all
		}
		c := Chart{Title: word.Draw(t, "title"), Y: Axis{Label: word.Draw(t, "y label"), Log: rapid.Bool().Draw(t, "log y")}}
		c.X = Axis{Label: word.Draw(t, "x label"), Log: rapid.Bool().Draw(t, "log x")}
		for range rapid.IntRange(0, 3).Draw(t, "lines") {
			c.Lines = append(c.Lines, Line{word.Draw(t, "line"), points(), rapid.Bool().Draw(t, "dots")})
		}
		svg := c.SVG()
		if svg == "" {
			return
		}
		d := parse(t, svg)
		box := strings.Fields(d["svg"][0]["viewBox"])
		inside := func(what string, x, y string) {
			require.True(t, float(t, x) >= 0 && float(t, x) <= float(t, box[2]), "%s: x is %s", what, x)
			require.True(t, float(t, y) >= 0 && float(t, y) <= float(t, box[3]), "%s: y is %s", what, y)
		}
		for _, e := range d["text"] {
			inside("text "+e["text"], e["x"], e["y"])
		}
		for _, e := range d["line"] {
			inside("line", e["x1"], e["y1"])
			inside("line", e["x2"], e["y2"])
		}
		for _, e := range d["circle"] {
			inside("circle", e["cx"], e["cy"])
		}
		for _, e := range d["polyline"] {
			for _, point := range strings.Fields(e["points"]) {
				x, y, _ := strings.Cut(point, ",")
				inside("polyline", x, y)
			}
		}
	})
}

func TestRowsHaveABarOrPoints(t *testing.T) {
	t.Parallel()
	rate, p50, p99 := result.Quantity{Name: "rate", Unit: "deliveries/s"}, result.Quantity{Name: "p50", Unit: "ms"}, result.Quantity{Name: "p99", Unit: "ms"}
	ours, theirs, late := result.Case{Name: "ours"}, result.Case{Name: "theirs & others"}, result.Case{Name: "late"}
	ours.Add(rate.Of(1500), rate.Of(2000), rate.Of(2500), p50.Of(1), p99.Of(100))
	theirs.Add(rate.Of(1000), p50.Of(0), p99.Of(5))
	cases := []result.Case{ours, theirs, late}
	grey := func(string) int { return Grey }
	d := parse(t, Rows("Drains", cases, grey, rate))
	bars := d["rect"]
	require.Len(t, bars, 2)
	require.InDelta(t, 2, float(t, bars[0]["width"])/float(t, bars[1]["width"]), 0.01)
	require.Len(t, d["line"], 1+len(fromZero([]float64{2500}).ticks), "only values with a range have a whisker")
	require.Subset(t, d.texts(), []string{"Drains", "ours", "theirs & others", "late", "2,000", "1,000", "deliveries/s"})
	require.Equal(t, "ours: 2,000", d["title"][0]["text"])

	d = parse(t, Rows("Latency", cases, grey, p50, p99))
	require.Len(t, d["circle"], 3, "a logarithmic axis has no place for 0")
	require.Subset(t, d.texts(), []string{"1 … 100", "ms: p50, p99"})
	require.Empty(t, Rows("Drains", []result.Case{late}, grey, rate))
}
