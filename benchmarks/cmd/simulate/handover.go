package main

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/benchmarks/report"
	"github.com/waybill-go/waybill/framework/forwarder/simulation"
)

// spread has the means of several runs with different seeds: seconds, and a number of lanes.
type spread struct{ even, longest, idle, moved float64 }

// repeat returns the means of the runs, and the longest time until the lanes were even.
func repeat(ctx context.Context, h simulation.Handover, s sizes) (mean spread, most time.Duration, err error) {
	for n := range s.seeds {
		if ctx.Err() != nil {
			return mean, most, context.Cause(ctx)
		}
		h.Seed = s.seed + uint64(n)
		r, err := h.Run()
		if err != nil {
			return mean, most, err
		}
		part := 1 / float64(s.seeds)
		mean.even += part * r.Even.Seconds()
		mean.longest += part * r.LongestIdle.Seconds()
		mean.idle += part * r.Idle.Seconds()
		mean.moved += part * float64(r.Moved)
		most = max(most, r.Even)
	}
	return mean, most, nil
}

// handovers shows what happens to lanes when a forwarder dies, leaves or joins.
func handovers(ctx context.Context, s sizes) (c chapter, err error) {
	const title = "Time until lanes are even after a forwarder's death"
	plot := report.Lines{Title: title, X: "forwarders before", Y: "seconds", LogX: true}
	var deaths, others [][]string
	for _, lanes := range s.lanes {
		line := report.Line{Name: english.Sprintf("%d lanes", lanes)}
		for _, forwarders := range s.forwarders {
			h := simulation.Handover{Forwarders: forwarders, Sinks: max(1, lanes/1024), Lanes: min(lanes, 1024)}
			h.Change = simulation.Death
			mean, most, err := repeat(ctx, h, s)
			if err != nil {
				return c, err
			}
			line.Points = append(line.Points, report.Point{X: float64(forwarders), Y: mean.even})
			deaths = append(deaths, []string{
				english.Sprintf("%d forwarders, %d lanes", forwarders, lanes), number(mean.even), seconds(most), number(mean.longest), number(mean.idle), number(mean.moved), number(float64(lanes) / float64(forwarders)),
			})
		}
		plot.Lines = append(plot.Lines, line)
	}
	lanes := s.lanes[min(1, len(s.lanes)-1)]
	for _, change := range []simulation.Change{simulation.Departure, simulation.Arrival} {
		for _, forwarders := range s.forwarders {
			mean, most, err := repeat(ctx, simulation.Handover{Change: change, Forwarders: forwarders, Lanes: lanes}, s)
			if err != nil {
				return c, err
			}
			needed := float64(lanes) / float64(forwarders)
			if change == simulation.Arrival {
				needed = float64(lanes) / float64(forwarders+1)
			}
			others = append(others, []string{
				english.Sprintf("%s, %d forwarders before", change, forwarders), number(1000 * mean.even), milliseconds(most), number(1000 * mean.longest), number(1000 * mean.idle), number(mean.moved), number(needed),
			})
		}
	}
	c.text = "### When a forwarder dies\n\n" + english.Sprintf("The lanes of a dead forwarder wait until its leases of 15 s expire; up to a third of this time had passed when it died. The table has the means of %d runs, and the longest time. *Idle* is how long a lane had no forwarder.\n\n", s.seeds) +
		image(title, "death.svg") +
		table([]string{"", "even after, s", "at most, s", "longest idle, s", "mean idle, s", "lanes moved", "lanes it had"}, deaths) +
		english.Sprintf("### When a forwarder leaves or joins\n\nWith %d lanes. Forwarders listen, so a lane that one releases is leased at once.\n\n", lanes) +
		table([]string{"", "even after, ms", "at most, ms", "longest idle, ms", "mean idle, ms", "lanes moved", "fewest possible"}, others)
	c.plots = map[string]report.Lines{"death.svg": plot}
	return c, nil
}
