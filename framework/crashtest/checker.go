package crashtest

import (
	"fmt"
	"slices"
	"time"
)

// row is a committed notification.
type row struct {
	id, key string
	n       int64 // number among the rows of its key; 0 if it has no order
}

// history is everything that happened.
type history struct {
	published  map[string]publication // what publishers know, by id
	log        []row                  // committed rows
	upstream   map[string]int         // result of Config.Upstream
	deliveries []delivery             // in order
	faults     []Fault
	began      time.Time // when the first fault could have begun
	replayed   int       // deliveries that people asked for again

	places map[string]places // by id, once a violation needs them
}

// places are where a notification occurs in a history.
type places struct {
	number     int64 // its place within its key
	logged     bool
	deliveries []int
}

// Broken names a broken guarantee.
type Broken string

// The ways in which a guarantee can be broken.
const (
	// Lost is a committed notification that was never delivered.
	Lost Broken = "lost"
	// Phantom was delivered although its transaction was rolled back or never existed.
	Phantom Broken = "phantom"
	// Disordered was first delivered after a later notification of its key.
	Disordered Broken = "disordered"
	// Changed was delivered with another id, key, type, time or payload than it was written with.
	Changed Broken = "changed"
	// Repeated was delivered again, and no fault explains that.
	Repeated Broken = "repeated"
	// Excessive means that after others took a forwarder's lanes, it made more deliveries than it
	// can have had in flight, even without those that people asked for.
	Excessive Broken = "excessive repeats"
	// Stalled means that something was still pending at the end of Config.Calm.
	Stalled Broken = "stalled"
	// Forgotten was committed according to the server, but is not in the log. The database is at
	// fault, not the forwarder.
	Forgotten Broken = "forgotten by the database"
)

// Violation is one case of a broken guarantee.
type Violation struct {
	Broken Broken
	ID     string // of the notification; "" if it concerns none
	Detail string // the history of the notification, with times as of Fault.Began
}

// judge returns all violations, and counts repeats in the faults of the history.
func (h *history) judge(c Config) []Violation {
	var found []Violation
	found = append(found, h.judgeDatabase()...)
	found = append(found, h.judgeDeliveries()...)
	found = append(found, h.judgeOrder()...)
	return append(found, h.judgeRepeats(c)...)
}

// judgeDatabase compares the log with what publishers know.
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

// judgeDeliveries compares the deliveries with the log. The log shows the outcome even of
// transactions whose outcome no publisher knows.
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

// judgeOrder checks the first deliveries, key by key.
func (h *history) judgeOrder() (found []Violation) {
	last := make(map[string]int64)
	seen := make(map[string]bool, len(h.log))
	for _, d := range h.deliveries {
		if seen[d.id] || d.n == 0 {
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

// judgeRepeats finds for each repeat the fault that explains it, except for repeats that upstream
// made and for as many as people asked for. A fault explains at most as many repeats as its victim
// had deliveries in flight (Config.Threshold) and made within the fault's reach.
func (h *history) judgeRepeats(c Config) (found []Violation) {
	h.findLocks(c)
	previous, times := make(map[string]delivery, len(h.log)), make(map[string]int, len(h.log))
	for _, d := range h.deliveries {
		before := previous[d.id]
		previous[d.id] = d
		times[d.id]++
		if times[d.id] > max(1, h.upstream[d.id]) && !h.explain(before, d, c) {
			found = append(found, h.violation(Repeated, d.id))
		}
	}
	asked := h.replayed // repeats for which no other explanation is needed
	if len(found) <= asked {
		asked -= len(found)
		found = nil
	}
	for i := range h.faults {
		f := &h.faults[i]
		f.Bound = h.deliveredWithin(f, c)
		switch excess := f.late - c.Threshold; {
		case excess > asked:
			found = append(found, Violation{Broken: Excessive, Detail: f.String()})
		case excess > 0:
			asked -= excess
		}
	}
	return found
}

// explain counts a repeat in the last fault that explains it. Either the fault's victim made the
// delivery before the repeat, within the fault's reach, or it made the repeat itself, of a delivery
// that was in flight when others took its lanes.
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

// findLocks finds the faults of a forwarder that may have held a lock of the database for which an action of a person, or
// a change of lanes or routes, waited, which meanwhile had locked the lanes of all others.
func (h *history) findLocks(c Config) {
	for i := range h.faults {
		f := &h.faults[i]
		f.locks = (f.Kind == PauseForwarder || f.Kind == SilenceDatabase || f.Kind == SlowDatabase) && slices.ContainsFunc(h.faults, func(other Fault) bool {
			return (other.Kind == PersonActs || other.Kind == Reload) && other.began.Before(f.ended) && f.began.Before(other.ended.Add(c.Lease))
		})
	}
}

// harms reports whether a forwarder is the fault's victim.
func (f *Fault) harms(forwarder int) bool {
	return f.Kind == Stall || f.Kind.part() == "database" || f.locks || f.Victim == forwarder
}

func (f *Fault) reaches(at time.Time, c Config) bool {
	from, to := f.reach(c)
	return !at.Before(from) && at.Before(to)
}

// reach returns the period whose deliveries a fault may repeat; zero if it repeats none. The reach
// begins before the fault: one checkpoint earlier, since that much may be unwritten, or one delivery
// earlier, since its answer may be lost. At the beginning of a database outage the forwarder needs
// the time of one more checkpoint to notice.
func (f *Fault) reach(c Config) (from, to time.Time) {
	unwritten := f.began.Add(-c.Checkpoint)
	switch f.Kind {
	case KillForwarder:
		return unwritten, f.began.Add(slowest) // the sink was still handling these deliveries
	case PauseForwarder:
		return unwritten, f.ended.Add(c.Checkpoint)
	case CutSink:
		return unwritten.Add(-slowest), f.ended.Add(c.Checkpoint)
	case SlowDatabase, FailStep, StopSession, SetClock, Stall, // a lease may expire at any time
		EndSessions, FailOver: // they look for the sessions, and copy the server, first
		return unwritten, f.ended.Add(c.Checkpoint)
	case CutDatabase, SilenceDatabase, RestartDatabase, CrashDatabase:
		// The forwarder begins no delivery after a checkpoint that fails or is slow.
		return unwritten, f.began.Add(c.Checkpoint + slowest)
	}
	return time.Time{}, time.Time{} // a graceful stop and the end of a publisher repeat nothing
}

// deliveredWithin returns the largest number of repeats that a fault explains.
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

// violation returns a violation with the history of a notification.
func (h *history) violation(broken Broken, id string) Violation {
	if h.places == nil {
		h.findPlaces()
	}
	detail := "never published"
	if p, ok := h.published[id]; ok {
		detail = fmt.Sprintf("key %q, its publisher says %s", p.key, *p.outcome)
	}
	found := h.places[id]
	if found.logged {
		detail += fmt.Sprintf(", number %d of its key", found.number)
	} else {
		detail += ", not in the log"
	}
	if h.upstream != nil {
		detail += fmt.Sprintf(", %d times upstream", h.upstream[id])
	}
	for _, i := range found.deliveries {
		d := &h.deliveries[i]
		detail += fmt.Sprintf(", delivered by forwarder %d as number %d after %s", d.by, i+1, d.at.Sub(h.began).Round(time.Millisecond))
	}
	return Violation{broken, id, detail}
}

func (h *history) findPlaces() {
	h.places = make(map[string]places, len(h.log))
	for _, r := range h.log {
		h.places[r.id] = places{number: r.n, logged: true}
	}
	for i, d := range h.deliveries {
		found := h.places[d.id]
		found.deliveries = append(found.deliveries, i)
		h.places[d.id] = found
	}
}
