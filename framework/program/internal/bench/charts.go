package bench

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/benchmarks/plot"
	"github.com/waybill-go/waybill/benchmarks/result"
)

// images returns the charts of a scenario as SVG.
func images(s result.Scenario) []template.HTML {
	var images []template.HTML
	for _, c := range charts(s) {
		if svg := c.SVG(); svg != "" {
			images = append(images, template.HTML(svg)) // the chart has escaped its texts
		}
	}
	return images
}

func charts(s result.Scenario) []plot.Chart {
	switch s.Name {
	case "publish":
		return publishCharts(s)
	case "latency":
		return latencyCharts(s)
	case "sustain":
		return sustainCharts(s)
	case "sweep":
		return sweepCharts(s)
	}
	return throughputCharts(s)
}

// at returns a metric as a point.
func at(x float64, m *result.Metric) plot.Point {
	return plot.Point{X: x, Y: m.Median, Low: m.Min, High: m.Max}
}

// publishCharts returns charts with a group of bars for each number of clients.
func publishCharts(s result.Scenario) []plot.Chart {
	c := plot.Chart{Title: "Transactions per second", Y: plot.Axis{Label: transactions.Unit}}
	for _, one := range s.Cases {
		group, set, _ := strings.Cut(one.Name, ", ")
		if !slices.Contains(c.X.Names, group) {
			c.X.Names = append(c.X.Names, group)
		}
		i := slices.IndexFunc(c.Bars, func(b plot.Bars) bool { return b.Name == set })
		if i < 0 {
			i, c.Bars = len(c.Bars), append(c.Bars, plot.Bars{Name: set})
		}
		if m := one.Find(transactions.Name); m != nil {
			c.Bars[i].Values = append(c.Bars[i].Values, at(float64(slices.Index(c.X.Names, group)), m))
		}
	}
	return []plot.Chart{c}
}

// throughputCharts returns charts with a bar for each case.
func throughputCharts(s result.Scenario) []plot.Chart {
	c := plot.Chart{Title: "Throughput", Y: plot.Axis{Label: throughput.Unit}, Bars: make([]plot.Bars, 1)}
	for _, one := range s.Cases {
		if m := one.Find(throughput.Name); m != nil {
			c.Bars[0].Values = append(c.Bars[0].Values, at(float64(len(c.X.Names)), m))
			c.X.Names = append(c.X.Names, one.Name)
		}
	}
	return []plot.Chart{c}
}

// latencyCharts returns charts with a line over the percentiles for each case.
func latencyCharts(s result.Scenario) []plot.Chart {
	c := plot.Chart{Title: "From the commit to the sink's receipt", Y: plot.Axis{Label: "ms", Log: true}}
	for _, q := range []result.Quantity{p50, p95, p99, longest} {
		c.X.Names = append(c.X.Names, q.Name)
	}
	for _, one := range s.Cases {
		line := plot.Line{Name: one.Name, Dots: true}
		for x, q := range c.X.Names {
			if m := one.Find(q); m != nil {
				line.Points = append(line.Points, at(float64(x), m))
			}
		}
		c.Lines = append(c.Lines, line)
	}
	return []plot.Chart{c}
}

// sweepCharts returns charts of the throughput, and of the duration of a call, over the threshold.
func sweepCharts(s result.Scenario) []plot.Chart {
	over := plot.Axis{Label: "parallelism threshold", Log: true}
	rate := plot.Chart{Title: "Throughput", X: over, Y: plot.Axis{Label: throughput.Unit, Log: true}}
	calls := plot.Chart{Title: "Time of a call to the sink", X: over, Y: plot.Axis{Label: "ms", Log: true}}
	for _, name := range sinksSwept(s) {
		rates, halves, most := plot.Line{Name: name, Dots: true}, plot.Line{Name: name + " p50", Dots: true}, plot.Line{Name: name + " p99", Dots: true}
		for _, c := range s.Cases {
			own, _, _ := strings.Cut(c.Name, sweepSeparator)
			n := c.Find(atMost.Name)
			if own != name || n == nil {
				continue
			}
			for _, one := range []struct {
				of   *result.Metric
				line *plot.Line
			}{{c.Find(throughput.Name), &rates}, {c.Find(callP50.Name), &halves}, {c.Find(callP99.Name), &most}} {
				if one.of != nil {
					one.line.Points = append(one.line.Points, at(n.Median, one.of))
				}
			}
		}
		rate.Lines, calls.Lines = append(rate.Lines, rates), append(calls.Lines, halves, most)
	}
	return []plot.Chart{rate, calls}
}

// sinksSwept returns the sinks of a sweep, in order.
func sinksSwept(s result.Scenario) []string {
	var names []string
	for _, c := range s.Cases {
		name, _, _ := strings.Cut(c.Name, sweepSeparator)
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// sustainCharts returns charts of the last run over time.
func sustainCharts(s result.Scenario) []plot.Chart {
	var charts []plot.Chart
	for _, one := range s.Cases {
		for _, about := range []struct {
			title, unit string
			of          []result.Quantity
		}{
			{"Published and delivered", publishedRate.Unit, []result.Quantity{publishedRate, deliveredRate}},
			{"Lag", lag.Unit, []result.Quantity{lag}},
			{"Size", tableSize.Unit, []result.Quantity{tableSize, memory}},
			{"Dead rows", deadInLog.Unit, []result.Quantity{deadInLog, deadOutside}},
		} {
			c := plot.Chart{
				Title: fmt.Sprintf("%s, %s", about.title, one.Name),
				X:     plot.Axis{Label: "s"}, Y: plot.Axis{Label: about.unit},
			}
			for _, q := range about.of {
				c.Lines = append(c.Lines, curve(one, q))
			}
			charts = append(charts, c)
		}
	}
	return charts
}

// curve returns a quantity over time; it has no points if the quantity was not sampled.
func curve(c result.Case, q result.Quantity) plot.Line {
	line := plot.Line{Name: strings.ReplaceAll(q.Name, "_", " ")}
	for _, series := range c.Series {
		if series.Quantity == q && len(series.Points) > 1 {
			for _, p := range series.Points {
				line.Points = append(line.Points, plot.Point{X: p.Seconds, Y: p.Value})
			}
		}
	}
	return line
}
