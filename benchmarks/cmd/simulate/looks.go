package main

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/benchmarks/report"
	"github.com/waybill-go/waybill/framework/forwarder/simulation"
)

// longestPauses are the values of poll.max.
var longestPauses = []time.Duration{50 * time.Millisecond, 250 * time.Millisecond, time.Second}

// looks shows how many statements idle forwarders send to their databases.
func looks(ctx context.Context, s sizes) (c chapter, err error) {
	const title = "Statements of idle forwarders on one database"
	const many = "Statements of two idle forwarders for each of many databases on one server"
	one := report.Lines{Title: title, X: "forwarders", Y: "statements/s", LogX: true, LogY: true}
	all := report.Lines{Title: many, X: "databases", Y: "statements/s", LogX: true, LogY: true}
	var rows, others [][]string
	for _, longest := range longestPauses {
		name := "poll.max " + longest.String()
		alone, together := report.Line{Name: name}, report.Line{Name: name}
		for _, forwarders := range s.watchers {
			r, err := simulation.Looks{Forwarders: forwarders, Lanes: 16, PollMax: longest, Time: s.looking, Seed: s.seed}.Run()
			if err != nil {
				return c, err
			}
			alone.Points = append(alone.Points, report.Point{X: float64(forwarders), Y: r.All()})
			rows = append(rows, []string{plural(forwarders, "forwarder", "forwarders") + ", " + name, number(r.Probes), number(r.Memberships), number(r.Heartbeats), number(r.Renewals), number(r.All())})
		}
		for _, databases := range s.databases {
			if ctx.Err() != nil {
				return c, context.Cause(ctx)
			}
			r, err := simulation.Looks{Forwarders: 2, Databases: databases, PollMax: longest, Rate: 0.1, Time: s.looking, Seed: s.seed}.Run()
			if err != nil {
				return c, err
			}
			together.Points = append(together.Points, report.Point{X: float64(databases), Y: r.All()})
			others = append(others, []string{plural(databases, "database", "databases") + ", " + name, number(r.Probes), number(r.Memberships + r.Heartbeats + r.Renewals), number(r.All()), milliseconds(r.Found)})
		}
		one.Lines, all.Lines = append(one.Lines, alone), append(all.Lines, together)
	}
	c.text = "### What idle forwarders ask\n\nOne sink with 16 lanes, and no notifications.\n\n" + image(title, "looks.svg") +
		table([]string{"", "looks at the log/s", "at the leases/s", "heartbeats/s", "renewals of lanes/s", "all/s"}, rows) +
		"Many databases, each with two forwarders, a sink with one lane, and a notification every ten seconds that is not announced:\n\n" + image(many, "databases.svg") +
		table([]string{"", "looks at the log/s", "other statements/s", "all/s", "found after, ms"}, others)
	c.plots = map[string]report.Lines{"looks.svg": one, "databases.svg": all}
	return c, nil
}
