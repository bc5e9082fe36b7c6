package admin

import (
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

// The limits from which on something is trouble, besides store.Handover and the minute after which
// store.ParkedFigures counts a delivery as overdue. The dashboard, the doctor and the alert rules
// have no others.
const (
	// LateAfter is the age of the oldest pending row of a sink.
	LateAfter = 5 * time.Minute
	// HeldAfter is how long a transaction that has written to the log may be open.
	HeldAfter = 10 * time.Second
)

// KeptTooLong reports whether rows of an age should have left the log long ago: they are removed in
// batches and partitions, so some stay beyond the retention. A retention of 0 keeps all rows.
func KeptTooLong(age, retention time.Duration) bool {
	return retention > 0 && age > retention+retention/10+time.Hour
}

// Look is an outbox at one moment.
type Look struct {
	// At is the time of the look; zero before the first one.
	At         time.Time
	Sample     store.Sample
	Membership store.Membership
	// Sinks has the work of all forwarders for each sink, as a sum. A sink that no heartbeat names
	// is missing.
	Sinks map[string]store.SinkRunning
}

// What is wrong with a sink.
const (
	Paused       = "paused"
	BreakerOpen  = "breaker_open"
	NoForwarder  = "no_forwarder"
	LanesUnowned = "lanes_unowned"
	Throttled    = "throttled"
	Late         = "lag"
	DeadLetters  = "dead"
	Overdue      = "overdue"
	Destinations = "destinations"
)

// Trouble is something that is wrong with a sink. Fields that do not apply are zero.
type Trouble struct {
	// What is one of the constants above.
	What string
	// Forwarder is the one that sees it, Cause its reason, Since and Until its time.
	Forwarder, Cause string
	Since, Until     time.Time
	// Lag is how late the sink is.
	Lag time.Duration
	// Count is how many deliveries, lanes or destinations are concerned. Of is how many lanes there
	// are.
	Count, Of int
}

// Tolerance is how late a sink may be and how many of its deliveries may be dead without trouble.
type Tolerance struct {
	Lag  time.Duration
	Dead int
}

// Troubles returns what is wrong with a sink of the sample, the worst first. It is empty for a
// healthy sink.
func (l *Look) Troubles(s *store.SinkSample, t Tolerance) (all []Trouble) {
	if s.Paused {
		all = append(all, Trouble{What: Paused})
	}
	held := l.held(s.Sink)
	i := slices.IndexFunc(held, func(c store.Condition) bool { return c.Kind == store.ConditionBreakerOpen })
	running := l.Sinks[s.Sink]
	switch {
	case i >= 0:
		all = append(all, Trouble{What: BreakerOpen, Forwarder: held[i].Forwarder, Cause: held[i].Cause, Since: held[i].Since})
	case running.BreakerOpen:
		all = append(all, Trouble{What: BreakerOpen, Cause: running.Cause})
	}
	if unowned := l.Membership.Unowned(s.Sink); l.Sample.Forwarders == 0 {
		all = append(all, Trouble{What: NoForwarder})
	} else if unowned > 0 {
		all = append(all, Trouble{What: LanesUnowned, Count: unowned, Of: s.Owned + s.Free})
	}
	if i := slices.IndexFunc(held, func(c store.Condition) bool { return c.Kind == store.ConditionThrottled }); i >= 0 {
		all = append(all, Trouble{What: Throttled, Forwarder: held[i].Forwarder, Cause: held[i].Cause, Until: held[i].Until})
	}
	if s.Lag > t.Lag {
		all = append(all, Trouble{What: Late, Lag: s.Lag})
	}
	if dead := s.Parked.Count(store.StateDead); dead > t.Dead {
		all = append(all, Trouble{What: DeadLetters, Count: dead})
	}
	if s.Parked.Overdue > 0 && !s.Paused {
		all = append(all, Trouble{What: Overdue, Count: s.Parked.Overdue})
	}
	if n := l.destinations(s.Sink); n > 0 {
		all = append(all, Trouble{What: Destinations, Count: n})
	}
	return all
}

// held returns what holds up all of a sink, and not only one destination.
func (l *Look) held(sink string) []store.Condition {
	return slices.DeleteFunc(l.Membership.Conditions(time.Now()), func(c store.Condition) bool { return c.Sink != sink || c.Destination != "" })
}

// destinations counts the destinations of a sink that are throttled or fail.
func (l *Look) destinations(sink string) (held int) {
	for _, m := range l.Membership.Members {
		s := m.States[sink]
		held = max(held, s.AllDestinations, len(s.Destinations))
	}
	return held
}
