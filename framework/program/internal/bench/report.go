package bench

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed report.html
var reportPage string

// WriteHTML writes the result as one page with plots that needs nothing else: no
// other files, no network, no scripts.
func (r *Result) WriteHTML(w io.Writer) error {
	page, err := template.New("report").Funcs(template.FuncMap{
		"images": Scenario.images,
		"explain": func(s Scenario) string {
			return strings.ToUpper(explanations[s.Name][:1]) + explanations[s.Name][1:] + "."
		},
		"reading":  func(s Scenario) string { return readings[s.Name] },
		"settings": settingsText,
		"time":     func(r *Result) string { return r.Started.Format("2 January 2006, 15:04 UTC") },
		"seconds":  func(r *Result) string { return fmt.Sprintf("%.0f s", r.Seconds) },
	}).Parse(reportPage)
	if err != nil {
		return err
	}
	return page.Execute(w, r)
}

// readings say how to read a scenario's figures.
var readings = map[string]string{
	"publish": "“Of alone” is the rate as a share of that of the insert alone, in the same round with as many clients. " +
		"With one client, the time of a commit limits the rate; with many, the amount that the database can write.",
	"drain": "From the start of the forwarder to the last receipt. The no-op receiver shows what the database and the engine can do; " +
		"the receivers inside the process share its processors, so real ones may be faster or slower.",
	"latency": "Polling is how a forwarder finds commits that nothing announces, such as behind a transaction pooler.",
	"sustain": "If the lag grows all the time, more is published than can be delivered. Dead rows in the log should stay at 0: " +
		"its rows are never updated. The time series are those of the last run; memory is that of the whole program.",
	"sweep": "Choose the smallest threshold above which throughput hardly grows. Where calls begin to take longer, additional deliveries in flight only wait for each other.",
	"fault": "“Of healthy” compares with the same two sinks without a fault, in the same round: 1 means no difference. Memory should not grow with the backlog.",
}
