package crashtest

import (
	"fmt"
	"slices"
	"time"
)

// row is a committed notification.
type row struct {
	id, key string
	n       int64 // its place among those of its key
}

// history is all that happened.
type history struct {
	published  map[string]publication // what publishers know, by id
	log        []row                  // what was committed, in the order of the log
	upstream   map[string]int         // what Config.Upstream says
	deliveries []delivery             // in their order
	faults     []Fault
}

// Broken is a guarantee that was broken.
type Broken string

// The guarantees, by how they are broken.
const (
	// Lost: committed, and never delivered.
	Lost Broken = "lost"
	// Phantom: delivered, though its transaction was rolled back or never was.
	Phantom Broken = "phantom"
	// Disordered: delivered for the first time behind a later one of its key.
	Disordered Broken = "disordered"
	// Repeated: delivered again, and no fault explains it.
	Repeated Broken = "repeated"
	// Excessive: a forwarder delivered more behind those who took its lanes than it
	// can have had in flight.
	Excessive Broken = "excessive repeats"
	// Stalled: something was still pending when Config.Calm was over.
	Stalled Broken = "stalled"
	// Forgotten: the server said that it was committed, and it is not in the log.
	// This is not the forwarder's doing.
	Forgotten Broken = "forgotten by the database"
)

// Violation is one case of it.
type Violation struct {
	Broken Broken
	ID     string // of the notification; "" where it is about none
	Detail string // what is known of it, with times since the first delivery
}

// judge finds all violations, and counts repeats in the history's faults.
func (h *history) judge(c Config) []Violation {
	var found []Violation
	found = append(found, h.judgeDatabase()...)
	found = append(found, h.judgeDeliveries()...)
	found = append(found, h.judgeOrder()...)
	return append(found, h.judgeRepeats(c)...)
}

// judgeDatabase compares what publishers were told with the log.
func (h *history) judgeDatabase() (found []Violation) {
	logged := make(map[string]bool, len(h.log))
	for _, r := range h.log {
		logged[r.id] = true
	}
	for id, p := range h.published {
		if *p.outcome == committed && !logged[id] {
			found = append(found, h.violation(Forgotten, id))
		}
	}
	return found
}

// judgeDeliveries compares the log with what was delivered. The log knows also
// what became of transactions whose outcome no publisher knows.
func (h *history) judgeDeliveries() (found []Violation) {
	delivered := make(map[string]bool, len(h.log))
	for _, d := range h.deliveries {
		delivered[d.id] = true
	}
	for _, r := range h.log {
		if !delivered[r.id] {
			found = append(found, h.violation(Lost, r.id))
		}
		delete(delivered, r.id)
	}
	for id := range delivered {
		found = append(found, h.violation(Phantom, id))
	}
	return found
}

// judgeOrder looks at first deliveries, key by key.
func (h *history) judgeOrder() (found []Violation) {
	last := make(map[string]int64)
	seen := make(map[string]bool, len(h.log))
	for _, d := range h.deliveries {
		if seen[d.id] || d.key == "" {
			continue
		}
		seen[d.id] = true
		if d.n < last[d.key] {
			found = append(found, h.violation(Disordered, d.id))
		}
		last[d.key] = max(last[d.key], d.n)
	}
	return found
}

// judgeRepeats finds for each repeat the fault that explains it, except what was repeated
// upstream already. A fault may have as many repeats as its victim had in flight
// (Config.Threshold) and delivered within the fault's reach.
func (h *history) judgeRepeats(c Config) (found []Violation) {
	previous, times := make(map[string]delivery, len(h.log)), make(map[string]int, len(h.log))
	for _, d := range h.deliveries {
		before := previous[d.id]
		previous[d.id] = d
		times[d.id]++
		if times[d.id] > max(1, h.upstream[d.id]) && !h.explain(before, d, c) {
			found = append(found, h.violation(Repeated, d.id))
		}
	}
	for i := range h.faults {
		f := &h.faults[i]
		f.Bound = h.deliveredWithin(f, c)
		if f.late > c.Threshold {
			found = append(found, Violation{Broken: Excessive, Detail: f.String()})
		}
	}
	return found
}

// explain counts a repeat in the last fault that explains it: one whose victim
// made the delivery before it within the fault's reach; or else one whose victim
// made the repeat, of what was in flight when others took its lanes.
func (h *history) explain(before, repeat delivery, c Config) bool {
	for i := len(h.faults) - 1; i >= 0; i-- {
		f := &h.faults[i]
		if f.reaches(before.at, c) && f.harms(before.by) {
			f.Repeats++
			return true
		}
	}
	for i := len(h.faults) - 1; i >= 0; i-- {
		f := &h.faults[i]
		if f.reaches(before.at, c) && f.harms(repeat.by) {
			f.Repeats++
			f.late++
			return true
		}
	}
	return false
}

// harms says whether a forwarder is a fault's victim.
func (f *Fault) harms(forwarder int) bool {
	return f.Kind == RestartDatabase || f.Kind == CrashDatabase || f.Victim == forwarder
}

func (f *Fault) reaches(at time.Time, c Config) bool {
	from, to := f.reach(c)
	return !at.Before(from) && at.Before(to)
}

// reach is when deliveries are made that a fault may repeat; zero for none. It
// begins one checkpoint before the fault, since that much may be unwritten, or one
// delivery, since its answer may be lost. When an outage of the database begins, the
// forwarder has one more checkpoint's time to notice.
func (f *Fault) reach(c Config) (from, to time.Time) {
	unwritten := f.began.Add(-c.Checkpoint)
	switch f.Kind {
	case KillForwarder:
		return unwritten, f.began.Add(slowest) // what the sink had in its hands
	case PauseForwarder:
		return unwritten, f.ended.Add(c.Checkpoint)
	case CutSink:
		return unwritten.Add(-slowest), f.ended.Add(c.Checkpoint)
	case SlowDatabase: // a lease may run out at any time
		return unwritten, f.ended.Add(c.Checkpoint)
	case CutDatabase, SilenceDatabase, RestartDatabase, CrashDatabase:
		// It begins no delivery once a checkpoint has failed, or has taken long.
		return unwritten, f.began.Add(c.Checkpoint + slowest)
	}
	return time.Time{}, time.Time{} // a graceful stop and a publisher's end repeat nothing
}

// deliveredWithin is a fault's bound.
func (h *history) deliveredWithin(f *Fault, c Config) (bound int) {
	from, to := f.reach(c)
	if to.IsZero() {
		return 0
	}
	at, _ := slices.BinarySearchFunc(h.deliveries, from, func(d delivery, at time.Time) int { return d.at.Compare(at) })
	for _, d := range h.deliveries[at:] {
		if !d.at.Before(to) {
			break
		}
		if f.harms(d.by) {
			bound++
		}
	}
	return bound + c.Threshold
}

// violation tells all that is known of a notification.
func (h *history) violation(broken Broken, id string) Violation {
	detail := "never published"
	if p, ok := h.published[id]; ok {
		detail = fmt.Sprintf("key %q, its publisher says %s", p.key, *p.outcome)
	}
	at := slices.IndexFunc(h.log, func(r row) bool { return r.id == id })
	if at < 0 {
		detail += ", not in the log"
	} else {
		detail += fmt.Sprintf(", number %d of its key, row %d of %d", h.log[at].n, at+1, len(h.log))
	}
	for i, d := range h.deliveries {
		if d.id == id {
			detail += fmt.Sprintf(", delivered by forwarder %d as number %d after %s", d.by, i+1, d.at.Sub(h.deliveries[0].at).Round(time.Millisecond))
		}
	}
	return Violation{broken, id, detail}
}
