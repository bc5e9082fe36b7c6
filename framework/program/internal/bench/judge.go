package bench

import (
	"fmt"

	"github.com/waybill-go/waybill/benchmarks/result"
)

// judge sets OK, and adds warnings about what makes figures doubtful.
func judge(r *result.Result) {
	r.OK = true
	for _, s := range r.Scenarios {
		for _, c := range s.Cases {
			for _, check := range c.Checks {
				r.OK = r.OK && check.OK()
				if check.Repeated > 0 {
					r.Warn("%s, %s: %d notifications arrived more than once at %s; the forwarder must have been slower than its lease, or connections broke",
						s.Name, c.Name, check.Repeated, check.Sink)
				}
			}
		}
	}
	if r.Settings.Runs < DefaultRuns {
		r.Warn("%s per case: too few to rule out chance; use at least %d", result.Plural(r.Settings.Runs, "run"), DefaultRuns)
	}
	judgeMemory(r)
	judgeSpread(r)
	// Lists are [] in JSON and not null.
	for _, s := range r.Scenarios {
		for i := range s.Cases {
			c := &s.Cases[i]
			c.Metrics, c.Checks = append([]result.Metric{}, c.Metrics...), append([]result.Check{}, c.Checks...)
		}
	}
	r.Warnings = append([]string{}, r.Warnings...)
}

// judgeMemory warns of backlogs that do not fit in memory.
func judgeMemory(r *result.Result) {
	largest := 0.0
	for _, s := range r.Scenarios {
		for _, c := range s.Cases {
			if m := c.Find(rowsOf.Name); m != nil {
				largest = max(largest, m.Max)
			}
		}
	}
	if size := bytesOnDisk(int(largest), r.Settings.PayloadBytes); r.Machine.MemoryBytes > 0 && uint64(size) > r.Machine.MemoryBytes/2 {
		r.Warn("the backlog takes about %s, and the machine has %s of memory: each run reads different parts of it from the disk",
			result.Bytes(size), result.Bytes(int64(r.Machine.MemoryBytes)))
	}
}

// maxSpread is how far apart the runs of a case may be, as a share of the median, without a
// warning.
const maxSpread = 0.3

// judgeSpread warns of cases whose runs are far apart, by the first metric of each case.
func judgeSpread(r *result.Result) {
	all := 0
	var apart []string
	for _, s := range r.Scenarios {
		for _, c := range s.Cases {
			if len(c.Metrics) == 0 {
				continue
			}
			all++
			m := c.Metrics[0]
			if spread := (m.Max - m.Min) / m.Median; m.Median > 0 && spread > maxSpread {
				apart = append(apart, fmt.Sprintf("%s, %s: %s to %s %s", s.Name, c.Name, result.Number(m.Min), result.Number(m.Max), m.Unit))
			}
		}
	}
	if len(apart) > 0 {
		r.Warn("the runs are far apart in %d of %d cases (such as %s): the machine has other load, or the runs are too short; raise --runs, --rows or --duration",
			len(apart), all, apart[0])
	}
}
