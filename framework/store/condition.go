package store

import (
	"cmp"
	"slices"
	"time"
)

// SinkState is what a forwarder knows about problems of a sink that hold up its deliveries.
// The zero value means that there are none.
type SinkState struct {
	// BreakerOpen reports that the sink is unavailable, or fails so often that its deliveries
	// wait. OpenSince is when the breaker opened, and Cause the last error.
	BreakerOpen bool      `json:"breaker_open,omitempty"`
	OpenSince   time.Time `json:"open_since,omitzero"`
	Cause       string    `json:"cause,omitempty"`
	// ThrottledUntil is until when the sink has asked the forwarder to wait. If the breaker is
	// not open, Cause is the error with which it asked.
	ThrottledUntil time.Time `json:"throttled_until,omitzero"`
	// Destinations are up to ten destinations that hold up their deliveries, and
	// AllDestinations is how many there are.
	Destinations    []DestinationState `json:"destinations,omitempty"`
	AllDestinations int                `json:"all_destinations,omitempty"`
}

// DestinationState is what a forwarder knows about problems of one destination of a sink.
type DestinationState struct {
	Destination string `json:"destination"`
	// OpenSince is when its breaker opened, zero if it is closed; Cause is the last error.
	OpenSince time.Time `json:"open_since,omitzero"`
	Cause     string    `json:"cause,omitempty"`
	// ThrottledUntil is until when it has asked the forwarder to wait.
	ThrottledUntil time.Time `json:"throttled_until,omitzero"`
}

// Holds reports whether the state holds up any deliveries.
func (s SinkState) Holds() bool {
	return s.BreakerOpen || !s.ThrottledUntil.IsZero() || len(s.Destinations) > 0
}

// Condition is why a sink gets no or fewer deliveries at present.
type Condition struct {
	Sink string        `json:"sink"`
	Kind ConditionKind `json:"condition"`
	// Destination is the destination concerned; "" for the whole sink.
	Destination string `json:"destination,omitempty"`
	// Forwarder is the forwarder that reports it; "" if it applies to all.
	Forwarder string `json:"forwarder,omitempty"`
	// Since is when the breaker opened, and Until when the throttling ends.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Cause is the error that keeps the breaker open, or that asked to wait.
	Cause string `json:"cause,omitempty"`
}

// ConditionKind is the kind of a condition.
type ConditionKind string

// The kinds of conditions.
const (
	// ConditionPaused: a person has paused the sink.
	ConditionPaused ConditionKind = "paused"
	// ConditionBreakerOpen: its deliveries wait until it is available again.
	ConditionBreakerOpen ConditionKind = "breaker open"
	// ConditionThrottled: it has asked the forwarder to wait until a time.
	ConditionThrottled ConditionKind = "throttled"
)

// Conditions returns the conditions of all sinks, by sink. Reports of forwarders are as old as
// their last heartbeat, at most a third of a lease. Conditions that ended before now are left out.
func (r Membership) Conditions(now time.Time) []Condition {
	conditions := []Condition{}
	for _, l := range r.Lanes {
		c := Condition{Sink: l.Lane.Sink, Kind: ConditionPaused}
		if l.Paused && !slices.Contains(conditions, c) {
			conditions = append(conditions, c)
		}
	}
	for _, m := range r.Members {
		for sink, s := range m.States {
			if s.BreakerOpen {
				conditions = append(conditions, Condition{Sink: sink, Kind: ConditionBreakerOpen, Forwarder: m.Owner, Since: s.OpenSince, Cause: s.Cause})
			}
			if s.ThrottledUntil.After(now) {
				conditions = append(conditions, Condition{Sink: sink, Kind: ConditionThrottled, Forwarder: m.Owner, Until: s.ThrottledUntil, Cause: s.Cause})
			}
			for _, d := range s.Destinations {
				c := Condition{Sink: sink, Destination: d.Destination, Forwarder: m.Owner}
				switch {
				case !d.OpenSince.IsZero():
					c.Kind, c.Since, c.Cause = ConditionBreakerOpen, d.OpenSince, d.Cause
				case d.ThrottledUntil.After(now):
					c.Kind, c.Until, c.Cause = ConditionThrottled, d.ThrottledUntil, d.Cause
				default:
					continue
				}
				conditions = append(conditions, c)
			}
		}
	}
	slices.SortFunc(conditions, func(a, b Condition) int {
		return cmp.Or(cmp.Compare(a.Sink, b.Sink), cmp.Compare(a.Destination, b.Destination), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Forwarder, b.Forwarder))
	})
	return conditions
}
