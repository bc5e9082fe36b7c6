package config

import (
	"maps"
	"reflect"
	"slices"

	"github.com/waybill-go/waybill/framework/forwarder"
)

// Changes is what differs between two configurations.
type Changes struct {
	// Adjusted are the sinks to which deliveries are only made otherwise, which a
	// forwarder that runs can take over.
	Adjusted []string
	// More says that there is more, which takes another forwarder.
	More bool
}

// None says that there are no differences.
func (c Changes) None() bool { return len(c.Adjusted) == 0 && !c.More }

// ChangesTo compares a configuration with the one that is to follow it.
func (c *Config) ChangesTo(next *Config) Changes {
	var changes Changes
	before, after := c.fixed(), next.fixed()
	changes.More = !reflect.DeepEqual(before, after)
	for _, name := range slices.Sorted(maps.Keys(next.Sinks)) {
		if old, ok := c.Sinks[name]; ok && !reflect.DeepEqual(old.live(), next.Sinks[name].live()) {
			changes.Adjusted = append(changes.Adjusted, name)
		}
	}
	return changes
}

// Adjust gives a forwarder that runs the settings of a sink that it can take over.
func (c *Config) Adjust(f *forwarder.Forwarder, sink string) error {
	next := c.Sinks[sink].forwarder()
	return f.Adjust(sink, func(s *forwarder.Sink) {
		s.Parallelism, s.Retry, s.Timeout = next.Parallelism, next.Retry, next.Timeout
		s.Rate, s.Breaker, s.Fairness, s.OnUnknown = next.Rate, next.Breaker, next.Fairness, next.OnUnknown
	})
}

// live is the part of a sink's settings that a forwarder that runs can take over.
func (s Sink) live() Sink {
	return Sink{Parallelism: s.Parallelism, Retry: s.Retry, Timeout: s.Timeout, Rate: s.Rate, Breaker: s.Breaker, Fairness: s.Fairness, OnUnknown: s.OnUnknown}
}

// fixed is the rest of a configuration, in a form that can be compared.
func (c *Config) fixed() any {
	rest := *c
	rest.Sinks = make(map[string]Sink, len(c.Sinks))
	for name, sink := range c.Sinks {
		// Settings as they were made, since files that they name may have changed.
		rest.Sinks[name] = Sink{Kind: sink.Kind, Start: sink.Start, OnDead: sink.OnDead, settings: sink.settings}
	}
	return rest
}
