package bench

import (
	"html/template"

	"github.com/waybill-go/waybill/benchmarks/plot"
	"github.com/waybill-go/waybill/benchmarks/result"
)

// drawn has the plots of each scenario, by their titles and quantities.
var drawn = map[string][]struct {
	title string
	of    []result.Quantity
}{
	"publish": {{"Transactions per second", []result.Quantity{transactions}}},
	"drain":   {{"Throughput", []result.Quantity{throughput}}},
	"latency": {{"From the commit to the sink's receipt", []result.Quantity{p50, p95, p99, longest}}},
	"sustain": {{"Published", []result.Quantity{publishedRate}}, {"Delivered meanwhile", []result.Quantity{deliveredRate}}},
	"sweep":   {{"Throughput", []result.Quantity{throughput}}, {"Time of a call to the sink", []result.Quantity{callP50, callP99}}},
	"fault":   {{"Throughput", []result.Quantity{throughput}}},
}

// images returns the plots of a scenario as SVG.
func images(s result.Scenario) (images []template.HTML) {
	for _, d := range drawn[s.Name] {
		if svg := plot.Rows(d.title, s.Cases, func(string) int { return 0 }, d.of...); svg != "" {
			images = append(images, template.HTML(svg)) // the plot has escaped its texts
		}
	}
	return images
}
