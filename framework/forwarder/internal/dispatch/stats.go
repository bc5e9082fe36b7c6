package dispatch

import (
	"maps"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

// Stats counts what was done for a sink.
type Stats struct {
	Sink        string
	Delivered   int64 // deliveries
	Failed      int64 // attempts that failed temporarily
	Dead        int64 // dead deliveries
	PassedBy    int64 // notifications for which no condition of their routes to the sink holds
	Superseded  int64 // deliveries that were not made since a newer one of their group was
	Collections int64 // deliveries of several notifications as one; Delivered counts each of these
	Ungrouped   int64 // notifications that were not collected since they have no group
	Pending     int   // unsettled deliveries in memory
	InFlight    int   // of these, in flight
	// Abandoned is the number of calls of the sink that did not return after their deadline.
	// Each keeps a slot of the threshold.
	Abandoned int
}

// Stats returns the counts.
func (d *Dispatcher) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := Stats{Sink: d.name, Pending: d.pending, InFlight: d.inFlight, Abandoned: d.stuck}
	for _, in := range d.stats {
		s.add(in)
	}
	return s
}

// StatsIn returns the counts of one database; "" is the only one of a forwarder without a fleet.
// In a fleet, Pending also counts deliveries that are settled and not yet written.
func (d *Dispatcher) StatsIn(database string) Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := Stats{Sink: d.name}
	if in := d.stats[database]; in != nil {
		s.add(in)
	}
	if database == "" {
		s.Pending, s.InFlight = d.pending, d.inFlight
		return s
	}
	for l := range d.lanes {
		if l.lease.Lane.Database == database {
			s.Pending, s.InFlight = s.Pending+l.rows, s.InFlight+l.inFlight
		}
	}
	return s
}

// Databases returns the names of all databases of which a lane was ever joined, in no order.
func (d *Dispatcher) Databases() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.stats))
}

// statsOf returns the counts of a database, and creates them if there are none. The caller holds the mutex.
func (d *Dispatcher) statsOf(database string) *Stats {
	s := d.stats[database]
	if s == nil {
		s = &Stats{}
		d.stats[database] = s
	}
	return s
}

func (s *Stats) add(more *Stats) {
	s.Delivered += more.Delivered
	s.Failed += more.Failed
	s.Dead += more.Dead
	s.PassedBy += more.PassedBy
	s.Superseded += more.Superseded
	s.Collections += more.Collections
	s.Ungrouped += more.Ungrouped
}

// Figures is the present state of a sink's deliveries.
type Figures struct {
	Sink      string
	Threshold int // maximum of deliveries, or batches, in flight; the present one if it is adaptive
	InFlight  int // deliveries in flight
	Pending   int // unsettled deliveries in memory, including those in flight
	// Abandoned is the number of calls of the sink that did not return after their deadline.
	// Each keeps a slot of the threshold.
	Abandoned   int
	BreakerOpen bool // of the sink's own breaker, not those of its destinations
	// ThrottledUntil is when the sink's own throttling ends; zero if it is not throttled.
	ThrottledUntil time.Time
}

// Figures returns the present state.
func (d *Dispatcher) Figures() Figures {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := Figures{Sink: d.name, Threshold: d.threshold(), InFlight: d.inFlight, Pending: d.pending,
		Abandoned: d.stuck, BreakerOpen: d.breaker.IsOpen()}
	if until := d.breaker.ThrottledUntil(); until.After(time.Now()) {
		f.ThrottledUntil = until.UTC()
	}
	return f
}

// State returns what delays the sink's deliveries, for people.
func (d *Dispatcher) State() store.SinkState {
	d.mu.Lock()
	defer d.mu.Unlock()
	var s store.SinkState
	if d.breaker.IsOpen() {
		s.BreakerOpen, s.OpenSince = true, d.breaker.OpenSince().UTC()
		if cause := d.breaker.Cause(); cause != nil {
			s.Cause = store.CutText(sinks.Brief(cause), maxErrorText)
		}
	}
	if until := d.breaker.ThrottledUntil(); until.After(time.Now()) {
		s.ThrottledUntil = until.UTC()
		if cause := d.breaker.ThrottledBy(); cause != nil && s.Cause == "" {
			s.Cause = store.CutText(sinks.Brief(cause), maxErrorText)
		}
	}
	s.Destinations, s.AllDestinations = d.states(time.Now())
	return s
}
