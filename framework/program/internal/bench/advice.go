package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/benchmarks/result"
)

// advice returns a sentence for each scenario that leads to one, the most useful last; "" if
// notifications were lost.
func advice(r *result.Result) string {
	var list []string
	if !r.OK {
		return ""
	}
	for _, s := range r.Scenarios {
		if give := advisers[s.Name]; give != nil {
			list = append(list, give(s)...)
		}
	}
	return strings.Join(list, "\n")
}

var advisers = map[string]func(result.Scenario) []string{
	"drain": adviseDrain, "sustain": adviseSustain, "sweep": adviseSweep,
}

// enough is the share of the best throughput above which a higher threshold is not worth it, and the
// share of what is published that a forwarder that keeps up delivers meanwhile.
const enough = 0.95

// adviseSweep names the least threshold of each sink that has nearly the best throughput.
func adviseSweep(s result.Scenario) (list []string) {
	for _, sink := range sinksSwept(s) {
		best, chosen, highest := 0.0, 0.0, 0.0
		for _, c := range casesOf(s, sink) {
			best, highest = max(best, medianOf(c, throughput)), max(highest, medianOf(c, atMost))
		}
		for _, c := range casesOf(s, sink) {
			if n := medianOf(c, atMost); medianOf(c, throughput) >= enough*best && (chosen == 0 || n < chosen) {
				chosen = n
			}
		}
		if chosen == highest {
			list = append(list, fmt.Sprintf("The throughput to %s still grows at %.0f: set threshold: %.0f, and measure higher ones.", sink, chosen, chosen))
		} else {
			list = append(list, fmt.Sprintf("The throughput to %s hardly grows above %.0f: set threshold: %.0f.", sink, chosen, chosen))
		}
	}
	return list
}

// adviseDrain names the slowest sink.
func adviseDrain(s result.Scenario) []string {
	if len(s.Cases) == 0 {
		return nil
	}
	slowest := slices.MinFunc(s.Cases, func(a, b result.Case) int {
		return int(medianOf(a, throughput) - medianOf(b, throughput))
	})
	return []string{fmt.Sprintf("A backlog drains slowest to %s, with %s/s: waybill bench sweep finds the threshold that it needs.", slowest.Name, result.Number(medianOf(slowest, throughput)))}
}

// adviseSustain says whether the forwarder keeps up.
func adviseSustain(s result.Scenario) (list []string) {
	for _, c := range s.Cases {
		published, delivered := medianOf(c, publishedRate), medianOf(c, deliveredRate)
		if delivered < enough*published {
			list = append(list, fmt.Sprintf("The forwarder does not keep up: %s/s are published and %s/s delivered: set a higher threshold (waybill bench sweep), or add forwarders.",
				result.Number(published), result.Number(delivered)))
			continue
		}
		list = append(list, fmt.Sprintf("The forwarder keeps up with %s notifications/s.", result.Number(published)))
	}
	return list
}

func casesOf(s result.Scenario, sink string) (list []result.Case) {
	for _, c := range s.Cases {
		if strings.HasPrefix(c.Name, sink+sweepSeparator) {
			list = append(list, c)
		}
	}
	return list
}

func medianOf(c result.Case, q result.Quantity) float64 {
	if m := c.Find(q.Name); m != nil {
		return m.Median
	}
	return 0
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
