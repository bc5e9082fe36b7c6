package plot

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
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

func sinks() Chart {
	return Chart{
		Title: "Throughput", X: Axis{Names: []string{"noop", "http"}}, Y: Axis{Label: "notifications/s"},
		Bars: []Bars{{Values: []Point{{0, 20_000, 15_000, 25_000}, {1, 10_000, 0, 0}}}},
	}
}

func TestBarsAreAsHighAsTheirValues(t *testing.T) {
	t.Parallel()
	d := parse(t, sinks().SVG())
	bars := d["rect"]
	require.Len(t, bars, 2)
	require.InDelta(t, 2, float(t, bars[0]["height"])/float(t, bars[1]["height"]), 0.01)
	require.Len(t, d["path"], 1, "only values with a range have a whisker")
	require.Subset(t, d.texts(), []string{"Throughput", "notifications/s", "noop", "http", "20,000", "10,000", "0", "5,000"})
	require.Equal(t, "20,000 (15,000–25,000)", d["title"][0]["text"])
}

func TestSetsOfBarsAreBesideEachOther(t *testing.T) {
	t.Parallel()
	c := sinks()
	c.Bars = []Bars{{"before", []Point{{0, 5, 0, 0}, {1, 5, 0, 0}}}, {"after", []Point{{0, 4, 0, 0}, {1, 4, 0, 0}}}}
	d := parse(t, c.SVG())
	require.Len(t, d["rect"], 6, "four bars, two in the legend")
	require.Subset(t, d.texts(), []string{"before", "after"})
	right := 0.0
	for _, i := range []int{2, 4, 3, 5} { // from left to right
		left := float(t, d["rect"][i]["x"])
		require.GreaterOrEqual(t, left, right)
		right = left + float(t, d["rect"][i]["width"])
	}
}

func TestALogarithmicAxisOmitsValuesThatItCannotShow(t *testing.T) {
	t.Parallel()
	c := Chart{X: Axis{Log: true}, Y: Axis{Log: true}, Lines: []Line{{"a", []Point{
		{1, 0, 0, 0}, {-1, 5, 0, 0}, {1, 1, 0, 3}, {4, 10, 0, 0}, {16, 100, 0, 0}, {64, math.Inf(1), 0, 0}, {256, math.NaN(), 0, 0},
	}, true}}}
	d := parse(t, c.SVG())
	points := strings.Fields(d["polyline"][0]["points"])
	require.Len(t, points, 3)
	require.Len(t, d["circle"], 3)
	require.Empty(t, d["path"], "a whisker cannot reach 0")
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
	require.Empty(t, Chart{Y: Axis{Log: true}, Lines: []Line{{"lag", []Point{{0, 0, 0, 0}}, false}}}.SVG())
	require.Empty(t, Chart{X: Axis{Names: []string{"a"}}, Bars: []Bars{{"", []Point{{1, 5, 0, 0}}}}}.SVG(), "no such name")
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

func TestNumbers(t *testing.T) {
	t.Parallel()
	for v, text := range map[float64]string{0: "0", 0.01234: "0.0123", 12.34: "12.3", 999: "999", 999.9: "1,000", 1000: "1,000", 1234567.8: "1,234,568", -1234: "-1,234", -123456: "-123,456"} {
		require.Equal(t, text, Number(v))
	}
}

func TestLongNamesAreBroken(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"beside a dead one"}, wrap("beside a dead one", 200))
	require.Equal(t, []string{"beside a", "dead", "one"}, wrap("beside a dead one", 50))
	require.Equal(t, []string{"beside a", "backlog", "of ten…"}, wrap("beside a backlog of ten million rows", 50))
	require.Equal(t, []string{"unbreaka…"}, wrap("unbreakable-name", 62))
	require.Empty(t, wrap("", 10))
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
				y := value.Draw(t, "y")
				all = append(all, Point{float64(x), y, y - math.Abs(value.Draw(t, "below")), y + math.Abs(value.Draw(t, "above"))})
			}
			return all
		}
		c := Chart{Title: word.Draw(t, "title"), Y: Axis{Label: word.Draw(t, "y label"), Log: rapid.Bool().Draw(t, "log y")}}
		c.X = Axis{Label: word.Draw(t, "x label"), Log: rapid.Bool().Draw(t, "log x")}
		bars := rapid.IntRange(0, 3).Draw(t, "bars")
		if bars > 0 || rapid.Bool().Draw(t, "named") {
			c.X.Log, c.X.Names = false, rapid.SliceOfN(word, 1, 12).Draw(t, "names")
		}
		for range bars {
			c.Bars = append(c.Bars, Bars{word.Draw(t, "set"), points()})
		}
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
		for _, e := range d["rect"] {
			inside("rect", e["x"], e["y"])
			inside("rect's end", fmt.Sprint(float(t, e["x"])+float(t, e["width"])), fmt.Sprint(float(t, e["y"])+float(t, e["height"])-0.1))
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
	r := Rows{Title: "Drains", X: Axis{Label: "deliveries/s"}, Rows: []Row{
		{Name: "ours", Points: []Point{{Y: 2000, Low: 1500, High: 2500}}}, {Name: "theirs & others", Colour: 1, Points: []Point{{Y: 1000}}}, {Name: "spoiled"},
	}}
	d := parse(t, r.SVG())
	bars := d["rect"]
	require.Len(t, bars, 2)
	require.InDelta(t, 2, float(t, bars[0]["width"])/float(t, bars[1]["width"]), 0.01)
	require.Subset(t, d.texts(), []string{"Drains", "ours", "theirs & others", "spoiled", "2,000", "1,000", "deliveries/s"})

	r.X.Log = true
	r.Rows[0].Points = []Point{{Y: 1}, {Y: 10}, {Y: 100}, {Y: 0}}
	d = parse(t, r.SVG())
	require.Len(t, d["circle"], 3, "a logarithmic axis has no place for 0")
	require.Contains(t, d.texts(), "1 … 100")
	require.Empty(t, Rows{Rows: []Row{{Name: "spoiled"}}}.SVG())
}
