package store

import (
	"cmp"
	"slices"
	"time"
)

// SinkState is what a forwarder knows of a sink that holds up its deliveries. The
// zero value is a sink that goes well.
type SinkState struct {
	// BreakerOpen reports that the sink cannot be reached, or fails so often that its
	// deliveries wait; OpenSince is when that began, Cause the last error of it.
	BreakerOpen bool      `json:"breaker_open,omitempty"`
	OpenSince   time.Time `json:"open_since,omitzero"`
	Cause       string    `json:"cause,omitempty"`
	// ThrottledUntil is until when the sink has asked to be left alone; where no breaker is open,
	// Cause is the error with which it did.
	ThrottledUntil time.Time `json:"throttled_until,omitzero"`
	// Destinations are up to ten of those that hold up their own deliveries, and
	// AllDestinations is how many there are.
	Destinations    []DestinationState `json:"destinations,omitempty"`
	AllDestinations int                `json:"all_destinations,omitempty"`
}

// DestinationState is what a forwarder knows of one destination of a sink.
type DestinationState struct {
	Destination string `json:"destination"`
	// OpenSince is when its breaker opened, zero if it did not; Cause the last error.
	OpenSince time.Time `json:"open_since,omitzero"`
	Cause     string    `json:"cause,omitempty"`
	// ThrottledUntil is until when it has asked to be left alone.
	ThrottledUntil time.Time `json:"throttled_until,omitzero"`
}

// Holds reports whether it holds anything up.
func (s SinkState) Holds() bool {
	return s.BreakerOpen || !s.ThrottledUntil.IsZero() || len(s.Destinations) > 0
}

// Condition is why nothing, or less, goes to a sink at present.
type Condition struct {
	Sink string        `json:"sink"`
	Kind ConditionKind `json:"condition"`
	// Destination is the one of the sink's that is meant; "" for the sink as a whole.
	Destination string `json:"destination,omitempty"`
	// Forwarder is whose view it is; "" for what holds for all.
	Forwarder string `json:"forwarder,omitempty"`
	// Since is when the breaker opened, Until when the throttling ends.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Cause is the error that keeps the breaker open, or that asked for rest.
	Cause string `json:"cause,omitempty"`
}

// ConditionKind says what a condition is.
type ConditionKind string

// The conditions that there are.
const (
	// ConditionPaused: a person has paused the sink.
	ConditionPaused ConditionKind = "paused"
	// ConditionBreakerOpen: its deliveries wait until it can be reached again.
	ConditionBreakerOpen ConditionKind = "breaker open"
	// ConditionThrottled: it has asked to be left alone until a time.
	ConditionThrottled ConditionKind = "throttled"
)

// Conditions are those of all sinks, by sink. What forwarders report is as old as
// their last heartbeat, a third of a lease at most. now leaves out what is over.
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
