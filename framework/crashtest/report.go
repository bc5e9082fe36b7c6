package crashtest

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// shown is how many violations String shows.
const shown = 20

// Report describes what Run did and found.
type Report struct {
	Seed     uint64        // causes the same faults again
	Duration time.Duration // from the first publisher to the end of the backlog
	Settling time.Duration // from the last publisher to the end of the backlog

	Transactions int // begun by publishers
	RolledBack   int // of these, rolled back on purpose or by a lost connection
	Unknown      int // of these, with an outcome that publishers do not know, although the log does
	Prepared     int // of these, with two phases

	Committed  int           // notifications in the log
	Deliveries int           // accepted by the sink
	Repeats    int           // of these, not the first of their notification
	Failures   int           // requests that the sink refused
	LongestGap time.Duration // between two deliveries
	GapEnded   time.Duration // when the longest one ended, as Fault.Ended

	Faults     []Fault
	Points     map[string]int // the points before and after durable steps at which a program failed, and how often
	Acts, Done int            // what people began, and what succeeded at once
	Replayed   int            // deliveries that people asked for again
	Violations []Violation
}

// check fills in the report.
func (r *Report) check(past history, c Config, pending string) {
	r.Committed, r.Deliveries, r.Replayed = len(past.log), len(past.deliveries), past.replayed
	seen := make(map[string]bool, len(past.log))
	for i, d := range past.deliveries {
		if seen[d.id] {
			r.Repeats++
		}
		seen[d.id] = true
		if i > 0 {
			if gap := d.at.Sub(past.deliveries[i-1].at); gap > r.LongestGap {
				r.LongestGap, r.GapEnded = gap, d.at.Sub(past.began)
			}
		}
	}
	if pending != "" {
		r.Violations = append(r.Violations, Violation{Broken: Stalled, Detail: fmt.Sprintf("after %s: %s", c.Calm, pending)})
	}
	r.Violations = append(r.Violations, past.judge(c)...)
}

// String returns a summary for people: counts, repeats for each kind of fault, and the first
// violations.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s, the last %s of it in calm\n", r.Seed, r.Duration.Round(time.Millisecond), r.Settling.Round(time.Millisecond))
	fmt.Fprintf(&b, "%d transactions, %d rolled back, %d of unknown outcome, %d prepared; %d notifications committed\n",
		r.Transactions, r.RolledBack, r.Unknown, r.Prepared, r.Committed)
	fmt.Fprintf(&b, "%d deliveries, %d of them repeats; %d requests failed by the sink; longest gap %s, until %s\n",
		r.Deliveries, r.Repeats, r.Failures, r.LongestGap.Round(time.Millisecond), r.GapEnded.Round(time.Millisecond))
	for _, kind := range append(slices.Clone(kinds), Stall) {
		var count, repeats, most, bound int
		for _, f := range r.Faults {
			if f.Kind == kind {
				count, repeats, most, bound = count+1, repeats+f.Repeats, max(most, f.Repeats), bound+f.Bound
			}
		}
		if count > 0 {
			fmt.Fprintf(&b, "  %3d x %-20s %6d repeats, %5d at most for one; bound %d in all\n", count, kind, repeats, most, bound)
		}
	}
	if len(r.Points) > 0 {
		fmt.Fprintf(&b, "  met %v\n", r.Points)
	}
	if r.Acts > 0 {
		fmt.Fprintf(&b, "  %d of %d acts succeeded at once; %d deliveries were asked for again\n", r.Done, r.Acts, r.Replayed)
	}
	for i, v := range r.Violations {
		if i == shown {
			fmt.Fprintf(&b, "… and %d more\n", len(r.Violations)-shown)
			break
		}
		fmt.Fprintln(&b, v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// String returns one line.
func (v Violation) String() string {
	if v.ID == "" {
		return fmt.Sprintf("%s: %s", v.Broken, v.Detail)
	}
	return fmt.Sprintf("%s: %+q: %s", v.Broken, v.ID, v.Detail)
}

// String returns one line.
func (f Fault) String() string {
	return fmt.Sprintf("%s %d from %s to %s: %d repeats of at most %d",
		f.Kind, f.Victim, f.Began.Round(time.Millisecond), f.Ended.Round(time.Millisecond), f.Repeats, f.Bound)
}
