package store

import (
	"cmp"
	"maps"
	"slices"
)

// SinkRunning is a forwarder's work for one sink, as of its last heartbeat.
type SinkRunning struct {
	// Sink is the sink's name, or SinkOthers.
	Sink string `json:"sink"`
	// Delivered counts deliveries, Failed attempts that failed temporarily, and Dead dead
	// deliveries, all since the forwarder was made.
	Delivered int64 `json:"delivered,omitempty"`
	Failed    int64 `json:"failed,omitempty"`
	Dead      int64 `json:"dead,omitempty"`
	// PerSecond is the number of deliveries per second in about the last minute, or since the
	// last heartbeat if that is longer ago.
	PerSecond float64 `json:"per_second,omitempty"`
	// InFlight is the number of deliveries in flight, Threshold their maximum, and Pending the
	// number of unsettled deliveries in memory.
	InFlight  int `json:"in_flight,omitempty"`
	Threshold int `json:"threshold,omitempty"`
	Pending   int `json:"pending,omitempty"`
	// BreakerOpen reports that its deliveries wait; Cause is the beginning of the last error.
	BreakerOpen bool   `json:"breaker_open,omitempty"`
	Cause       string `json:"cause,omitempty"`
}

// SinkOthers is the reserved name for the sum of the sinks that a heartbeat does not name.
const SinkOthers = "_others"

// RunningSinks is how many sinks a heartbeat names.
const RunningSinks = 32

// Plus returns the sum of both. Its cause is the first one.
func (s SinkRunning) Plus(more SinkRunning) SinkRunning {
	s.Delivered += more.Delivered
	s.Failed += more.Failed
	s.Dead += more.Dead
	s.PerSecond += more.PerSecond
	s.InFlight += more.InFlight
	s.Threshold += more.Threshold
	s.Pending += more.Pending
	s.BreakerOpen = s.BreakerOpen || more.BreakerOpen
	s.Cause = cmp.Or(s.Cause, more.Cause)
	return s
}

// BoundSinks keeps the RunningSinks most important sinks, by name: first those with an open
// breaker, then the busiest, then those with the most pending. It adds up the others under
// SinkOthers, at the end.
func BoundSinks(sinks []SinkRunning) []SinkRunning {
	sinks = slices.Clone(sinks)
	byName := func(a, b SinkRunning) int { return cmp.Compare(a.Sink, b.Sink) }
	if len(sinks) <= RunningSinks {
		slices.SortFunc(sinks, byName)
		return sinks
	}
	slices.SortFunc(sinks, func(a, b SinkRunning) int {
		if a.BreakerOpen != b.BreakerOpen {
			if a.BreakerOpen {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.PerSecond, a.PerSecond), cmp.Compare(b.Pending, a.Pending), byName(a, b))
	})
	others := SinkRunning{Sink: SinkOthers}
	for _, s := range sinks[RunningSinks:] {
		others = others.Plus(s)
	}
	sinks = sinks[:RunningSinks]
	slices.SortFunc(sinks, byName)
	return append(sinks, others)
}

// Sinks returns the sums over all running forwarders, by sink. What one forwarder reports as
// SinkOthers may belong to a sink that another one names: so each sum is a lower bound unless
// SinkOthers is missing, while the sum of all is exact.
func (m Membership) Sinks() []SinkRunning {
	sums := make(map[string]SinkRunning)
	for _, member := range m.Members {
		for _, s := range member.Running.Sinks {
			sum := sums[s.Sink].Plus(s)
			sum.Sink = s.Sink
			sums[s.Sink] = sum
		}
	}
	return slices.SortedFunc(maps.Values(sums), func(a, b SinkRunning) int { return cmp.Compare(a.Sink, b.Sink) })
}
