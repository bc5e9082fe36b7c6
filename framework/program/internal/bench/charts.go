package bench

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"gonum.org/v1/plot"
)

// charts are the plots of a scenario.
func (s Scenario) charts() ([]template.HTML, error) {
	var plots []*plot.Plot
	var err error
	switch s.Name {
	case "publish":
		plots, err = s.publishCharts()
	case "latency":
		plots, err = s.latencyCharts()
	case "sustain":
		plots, err = s.sustainCharts()
	case "sweep":
		plots, err = s.sweepCharts()
	default:
		plots, err = s.throughputCharts()
	}
	if err != nil {
		return nil, err
	}
	var images []template.HTML
	for _, p := range plots {
		image, err := render(p)
		if err != nil {
			return nil, err
		}
		images = append(images, image)
	}
	return images, nil
}

// publishCharts have a group of bars for each number of clients.
func (s Scenario) publishCharts() ([]*plot.Plot, error) {
	var groups, sets []string
	values := make(map[string]spreads)
	for _, c := range s.Cases {
		group, set, _ := strings.Cut(c.Name, ", ")
		if !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
		if !slices.Contains(sets, set) {
			sets = append(sets, set)
		}
		if m := c.find(transactions.Name); m != nil {
			values[set] = append(values[set], spreadOf(float64(slices.Index(groups, group)), m))
		}
	}
	p := newPlot("Transactions per second", "", transactions.Unit)
	addGrid(p)
	for i, set := range sets {
		if err := addBars(p, set, values[set], i, len(sets)); err != nil {
			return nil, err
		}
	}
	p.NominalX(groups...)
	p.Y.Min = 0
	roomForLegend(p)
	return []*plot.Plot{p}, nil
}

// throughputCharts have a bar for each case.
func (s Scenario) throughputCharts() ([]*plot.Plot, error) {
	var names []string
	var values spreads
	for _, c := range s.Cases {
		if m := c.find(throughput.Name); m != nil {
			values = append(values, spreadOf(float64(len(names)), m))
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	p := newPlot("Throughput", "", throughput.Unit)
	addGrid(p)
	if err := addBars(p, "", values, 0, 1); err != nil {
		return nil, err
	}
	p.NominalX(names...)
	p.Y.Min = 0
	p.Y.Max *= 1.05
	return []*plot.Plot{p}, nil
}

// latencyCharts have a line over the percentiles for each case.
func (s Scenario) latencyCharts() ([]*plot.Plot, error) {
	p := newPlot("From the commit to the sink's receipt", "", "ms")
	addGrid(p)
	percentiles := []Quantity{p50, p95, p99, longest}
	for i, c := range s.Cases {
		var values spreads
		for x, q := range percentiles {
			if m := c.find(q.Name); m != nil && m.Min > 0 {
				values = append(values, spreadOf(float64(x), m))
			}
		}
		if err := addLine(p, c.Name, values, i); err != nil {
			return nil, err
		}
	}
	p.NominalX(p50.Name, p95.Name, p99.Name, longest.Name)
	p.X.Min, p.X.Max = -0.2, 3.2
	logarithmic(&p.Y)
	p.Legend.Left = true
	return []*plot.Plot{p}, nil
}

// sweepCharts have throughput, and the time of a call, over the threshold.
func (s Scenario) sweepCharts() ([]*plot.Plot, error) {
	rate := newPlot("Throughput", "parallelism threshold", throughput.Unit)
	calls := newPlot("Time of a call to the sink", "parallelism threshold", "ms")
	addGrid(rate)
	addGrid(calls)
	for i, name := range s.sinksSwept() {
		var rates, p50s, p99s spreads
		for _, c := range s.Cases {
			own, _, _ := strings.Cut(c.Name, ", threshold ")
			n, r, half, most := c.find(atMost.Name), c.find(throughput.Name), c.find(callP50.Name), c.find(callP99.Name)
			if own != name || n == nil || r == nil || half == nil || most == nil || half.Min <= 0 {
				continue
			}
			rates = append(rates, spreadOf(n.Median, r))
			p50s = append(p50s, spreadOf(n.Median, half))
			p99s = append(p99s, spreadOf(n.Median, most))
		}
		for _, add := range []error{
			addLine(rate, name, rates, i),
			addLine(calls, name+" p50", p50s, 2*i),
			addLine(calls, name+" p99", p99s, 2*i+1),
		} {
			if add != nil {
				return nil, add
			}
		}
	}
	for _, p := range []*plot.Plot{rate, calls} {
		logarithmic(&p.X)
		logarithmic(&p.Y)
		p.Legend.Left = true
	}
	return []*plot.Plot{rate, calls}, nil
}

// sinksSwept are the sinks that were swept over, in their order.
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

// sustainCharts have the last run over time.
func (s Scenario) sustainCharts() ([]*plot.Plot, error) {
	var plots []*plot.Plot
	for _, c := range s.Cases {
		for _, chart := range []struct {
			title, unit string
			of          []Quantity
		}{
			{"Published and delivered", publishedRate.Unit, []Quantity{publishedRate, deliveredRate}},
			{"Lag", lag.Unit, []Quantity{lag}},
			{"Size", tableSize.Unit, []Quantity{tableSize, memory}},
			{"Dead rows", deadInLog.Unit, []Quantity{deadInLog, deadOutside}},
		} {
			p := newPlot(fmt.Sprintf("%s, %s", chart.title, c.Name), "s", chart.unit)
			addGrid(p)
			drawn := 0
			for _, series := range c.Series {
				if i := slices.Index(chart.of, series.Quantity); i >= 0 && len(series.Points) > 1 {
					if err := addCurve(p, strings.ReplaceAll(series.Name, "_", " "), series.Points, i); err != nil {
						return nil, err
					}
					drawn++
				}
			}
			if drawn == 0 {
				continue
			}
			p.Y.Min = 0
			p.Y.Max = max(p.Y.Max, 1)
			roomForLegend(p)
			plots = append(plots, p)
		}
	}
	return plots, nil
}

// roomForLegend leaves room above what is drawn.
func roomForLegend(p *plot.Plot) { p.Y.Max *= 1.25 }

// logarithmic makes an axis logarithmic, with room at both ends.
func logarithmic(a *plot.Axis) {
	if a.Min <= 0 || a.Max <= a.Min {
		return // nothing that could be drawn so
	}
	a.Min, a.Max = a.Min/1.15, a.Max*1.15
	a.Scale, a.Tick.Marker = plot.LogScale{}, logTicks{}
}
