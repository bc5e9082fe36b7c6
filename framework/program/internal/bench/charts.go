package bench

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/internal/chart"
)

// images returns the charts of a scenario as SVG.
func (s Scenario) images() []template.HTML {
	var images []template.HTML
	for _, c := range s.charts() {
		if svg := c.SVG(); svg != "" {
			images = append(images, template.HTML(svg)) // the chart has escaped its texts
		}
	}
	return images
}

func (s Scenario) charts() []chart.Chart {
	switch s.Name {
	case "publish":
		return s.publishCharts()
	case "latency":
		return s.latencyCharts()
	case "sustain":
		return s.sustainCharts()
	case "sweep":
		return s.sweepCharts()
	}
	return s.throughputCharts()
}

// at returns a metric as a point.
func at(x float64, m *Metric) chart.Point {
	return chart.Point{X: x, Y: m.Median, Low: m.Min, High: m.Max}
}

// publishCharts returns charts with a group of bars for each number of clients.
func (s Scenario) publishCharts() []chart.Chart {
	c := chart.Chart{Title: "Transactions per second", Y: chart.Axis{Label: transactions.Unit}}
	for _, one := range s.Cases {
		group, set, _ := strings.Cut(one.Name, ", ")
		if !slices.Contains(c.X.Names, group) {
			c.X.Names = append(c.X.Names, group)
		}
		i := slices.IndexFunc(c.Bars, func(b chart.Bars) bool { return b.Name == set })
		if i < 0 {
			i, c.Bars = len(c.Bars), append(c.Bars, chart.Bars{Name: set})
		}
		if m := one.find(transactions.Name); m != nil {
			c.Bars[i].Values = append(c.Bars[i].Values, at(float64(slices.Index(c.X.Names, group)), m))
		}
	}
	return []chart.Chart{c}
}

// throughputCharts returns charts with a bar for each case.
func (s Scenario) throughputCharts() []chart.Chart {
	c := chart.Chart{Title: "Throughput", Y: chart.Axis{Label: throughput.Unit}, Bars: make([]chart.Bars, 1)}
	for _, one := range s.Cases {
		if m := one.find(throughput.Name); m != nil {
			c.Bars[0].Values = append(c.Bars[0].Values, at(float64(len(c.X.Names)), m))
			c.X.Names = append(c.X.Names, one.Name)
		}
	}
	return []chart.Chart{c}
}

// latencyCharts returns charts with a line over the percentiles for each case.
func (s Scenario) latencyCharts() []chart.Chart {
	c := chart.Chart{Title: "From the commit to the sink's receipt", Y: chart.Axis{Label: "ms", Log: true}}
	for _, q := range []Quantity{p50, p95, p99, longest} {
		c.X.Names = append(c.X.Names, q.Name)
	}
	for _, one := range s.Cases {
		line := chart.Line{Name: one.Name, Dots: true}
		for x, q := range c.X.Names {
			if m := one.find(q); m != nil {
				line.Points = append(line.Points, at(float64(x), m))
			}
		}
		c.Lines = append(c.Lines, line)
	}
	return []chart.Chart{c}
}

// sweepCharts returns charts of the throughput, and of the duration of a call, over the threshold.
func (s Scenario) sweepCharts() []chart.Chart {
	over := chart.Axis{Label: "parallelism threshold", Log: true}
	rate := chart.Chart{Title: "Throughput", X: over, Y: chart.Axis{Label: throughput.Unit, Log: true}}
	calls := chart.Chart{Title: "Time of a call to the sink", X: over, Y: chart.Axis{Label: "ms", Log: true}}
	for _, name := range s.sinksSwept() {
		rates, halves, most := chart.Line{Name: name, Dots: true}, chart.Line{Name: name + " p50", Dots: true}, chart.Line{Name: name + " p99", Dots: true}
		for _, c := range s.Cases {
			own, _, _ := strings.Cut(c.Name, ", threshold ")
			n := c.find(atMost.Name)
			if own != name || n == nil {
				continue
			}
			for _, one := range []struct {
				of   *Metric
				line *chart.Line
			}{{c.find(throughput.Name), &rates}, {c.find(callP50.Name), &halves}, {c.find(callP99.Name), &most}} {
				if one.of != nil {
					one.line.Points = append(one.line.Points, at(n.Median, one.of))
				}
			}
		}
		rate.Lines, calls.Lines = append(rate.Lines, rates), append(calls.Lines, halves, most)
	}
	return []chart.Chart{rate, calls}
}

// sinksSwept returns the sinks of a sweep, in order.
func (s Scenario) sinksSwept() []string {
	var names []string
	for _, c := range s.Cases {
		name, _, _ := strings.Cut(c.Name, ", threshold ")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// sustainCharts returns charts of the last run over time.
func (s Scenario) sustainCharts() []chart.Chart {
	var charts []chart.Chart
	for _, one := range s.Cases {
		for _, about := range []struct {
			title, unit string
			of          []Quantity
		}{
			{"Published and delivered", publishedRate.Unit, []Quantity{publishedRate, deliveredRate}},
			{"Lag", lag.Unit, []Quantity{lag}},
			{"Size", tableSize.Unit, []Quantity{tableSize, memory}},
			{"Dead rows", deadInLog.Unit, []Quantity{deadInLog, deadOutside}},
		} {
			c := chart.Chart{
				Title: fmt.Sprintf("%s, %s", about.title, one.Name),
				X:     chart.Axis{Label: "s"}, Y: chart.Axis{Label: about.unit},
			}
			for _, q := range about.of {
				c.Lines = append(c.Lines, one.curve(q))
			}
			charts = append(charts, c)
		}
	}
	return charts
}

// curve returns a quantity over time; it has no points if the quantity was not sampled.
func (c Case) curve(q Quantity) chart.Line {
	line := chart.Line{Name: strings.ReplaceAll(q.Name, "_", " ")}
	for _, series := range c.Series {
		if series.Quantity == q && len(series.Points) > 1 {
			for _, p := range series.Points {
				line.Points = append(line.Points, chart.Point{X: p.Seconds, Y: p.Value})
			}
		}
	}
	return line
}
