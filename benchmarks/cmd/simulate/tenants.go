package main

import (
	"context"
	"time"

	"github.com/waybill-go/waybill/benchmarks/report"
	"github.com/waybill-go/waybill/framework/forwarder/simulation"
)

// way is a setting of a sink, and the way in which some of its tenants are dead.
type way struct {
	name      string
	isolation simulation.Isolation
	trouble   simulation.Trouble
}

// timeout is the default timeout of the http sink.
const timeout = 10 * time.Second

var ways = []way{
	{"refused, one breaker", simulation.IsolateNothing, simulation.Refuses},
	{"refused, slots apart", simulation.IsolateSlots, simulation.Refuses},
	{"refused, breakers too", simulation.IsolateAll, simulation.Refuses},
	{"hanging, one breaker", simulation.IsolateNothing, simulation.Hangs},
	{"hanging, slots apart", simulation.IsolateSlots, simulation.Hangs},
	{"hanging, breakers too", simulation.IsolateAll, simulation.Hangs},
}

func (w way) of(f fleetSize, dead int, s sizes) simulation.Tenants {
	return simulation.Tenants{
		Processes: f.processes, Slots: f.slots(), Tenants: f.tenants, Rate: f.rate, Latency: latency, Dead: dead,
		Trouble: w.trouble, Timeout: timeout, Isolation: w.isolation, WarmUp: s.warmUp, Time: s.time, Seed: s.seed,
	}
}

// tenants shows what dead tenants cost the others, for several numbers of dead tenants.
func tenants(ctx context.Context, s sizes) (c chapter, err error) {
	const title = "Deliveries to live tenants beside dead ones"
	const late = "99th percentile of the latency of live tenants beside dead ones"
	f := s.fleet
	share := report.Lines{Title: title, X: "dead tenants of 1,000", Y: "% of what they were sent", LogX: true, MostY: 110}
	latencies := report.Lines{Title: late, X: "dead tenants of 1,000", Y: "ms", LogX: true, LogY: true}
	var rows [][]string
	for _, w := range ways {
		got, slow := report.Line{Name: w.name, Dashed: w.trouble == simulation.Refuses}, report.Line{Name: w.name, Dashed: w.trouble == simulation.Refuses}
		for _, per := range s.dead {
			if ctx.Err() != nil {
				return c, context.Cause(ctx)
			}
			dead := f.tenants * per / 10_000
			if per > 0 && dead == 0 {
				continue
			}
			e, err := w.of(f, dead, s).Run()
			if err != nil {
				return c, err
			}
			rows = append(rows, tenantsRow(english.Sprintf("%s, %d dead", w.name, dead), e))
			if dead > 0 {
				x := 1000 * float64(dead) / float64(f.tenants)
				got.Points = append(got.Points, report.Point{X: x, Y: 100 * min(1, e.Delivered/e.Offered)})
				if e.NinetyNine > 0 {
					slow.Points = append(slow.Points, report.Point{X: x, Y: float64(e.NinetyNine) / float64(time.Millisecond)})
				}
			}
		}
		share.Lines, latencies.Lines = append(share.Lines, got), append(latencies.Lines, slow)
	}
	c.text = "### What dead tenants cost the others\n\n" +
		english.Sprintf("%d tenants get %.0f notifications/s together, through %d processes of %d slots: a destination takes %s to answer, so a third of the slots is spare. A dead tenant refuses connections, or hangs until the timeout of %s. The figures are of %s, beginning %s after their death.\n\n",
			f.tenants, f.rate, f.processes, f.slots(), latency, timeout, s.time, s.warmUp) +
		image(title, "tenants.svg") + image(late, "tenants-latency.svg") + table(tenantsHead, rows)
	c.plots = map[string]report.Lines{"tenants.svg": share, "tenants-latency.svg": latencies}
	return c, nil
}

var tenantsHead = []string{"", "live tenants: sent/s", "delivered/s", "share", "p50, ms", "p99, ms", "slots in use", "by dead ones", "calls of dead ones/s", "parked/s"}

func tenantsRow(name string, e simulation.Effect) []string {
	half, late := milliseconds(e.Half), milliseconds(e.NinetyNine)
	if e.Delivered == 0 {
		half, late = "–", "–"
	}
	return []string{
		name, number(e.Offered), number(e.Delivered), percent(e.Delivered / e.Offered), half, late, number(e.Busy), number(e.Wasted), number(e.Tries), number(e.Parked),
	}
}

// courses shows what happens in each second after one tenant in a hundred has died, in fleets of all sizes.
func courses(ctx context.Context, s sizes) (c chapter, err error) {
	const title = "After one tenant in a hundred has begun to hang"
	plot := report.Lines{Title: title, X: "seconds", Y: "% of what live tenants were sent", WithoutMarkers: true}
	var rows [][]string
	s.warmUp = s.course - s.time
	for i, f := range s.fleets {
		for _, w := range ways {
			if i > 0 && w.isolation != simulation.IsolateAll || i > 1 && w.trouble != simulation.Hangs {
				continue
			}
			if ctx.Err() != nil {
				return c, context.Cause(ctx)
			}
			e, err := w.of(f, max(1, f.tenants/100), s).Run()
			if err != nil {
				return c, err
			}
			recovered := "not within " + seconds(s.course)
			if since, ok := e.Recovered(0.95); ok {
				recovered = seconds(since)
			}
			row := tenantsRow(english.Sprintf("%s, %d tenants, %.0f/s: %s", plural(f.processes, "process", "processes"), f.tenants, f.rate, w.name), e)
			rows = append(rows, append(row, recovered))
			if i == 0 && w.trouble == simulation.Hangs {
				plot.Lines = append(plot.Lines, courseOf(w.name, e))
			}
		}
	}
	c.text = "### Fleets of any size\n\n" + english.Sprintf("One tenant in a hundred dies. *Recovered* is the second after that from which the others got at least 95 %% of their notifications in each second; all other figures are of the last %s of %s. A process has %d slots. The plot is of %d tenants and %.0f/s.\n\n",
		s.time, s.course, s.fleets[0].slots(), s.fleets[0].tenants, s.fleets[0].rate) +
		image(title, "course.svg") + table(append(tenantsHead, "recovered, s"), rows)
	c.plots = map[string]report.Lines{"course.svg": plot}
	return c, nil
}

// courseOf returns the deliveries to live tenants in each second, in percent of their notifications.
func courseOf(name string, e simulation.Effect) report.Line {
	line := report.Line{Name: name}
	for second, n := range e.Course {
		line.Points = append(line.Points, report.Point{X: float64(second) + 0.5, Y: 100 * float64(n) / e.Offered})
	}
	return line
}
