package config

import (
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/settings"
	"github.com/waybill-go/waybill/framework/webhooks"
)

// Effective returns the settings of a type's deliveries to a sink, with defaults filled in. Retry
// is the policy of the type, and from is the pattern of retry.types that it comes from; "" if the
// type has the sink's own policy.
func (c *Config) Effective(sink, typ string) (s forwarder.Sink, from string) {
	s = c.Sinks[sink].Sink
	if c.Sinks[sink].Kind == webhooks.KindName { // the sink may not be built
		s = webhooks.Defaults(s)
	}
	s = s.WithDefaults()
	s.Retry, from = s.Retry.For(typ)
	return s, from
}

// MaxAttempts returns how many attempts a delivery of a type to a sink has; 0 if only its age limits them.
func (c *Config) MaxAttempts(sink, typ string) int {
	s, _ := c.Effective(sink, typ)
	return s.Retry.Attempts()
}

// Collect returns how a sink collects, with defaults filled in.
func (c *Config) Collect(sink string) settings.Collect {
	s, _ := c.Effective(sink, "")
	return s.Collect
}

// withDefaults returns the sink with the forwarder's defaults filled in.
func (s Sink) withDefaults() Sink {
	given := s.Retry.Types
	s.Sink = s.WithDefaults()
	s.Retry.Types = make(map[string]forwarder.Retry, len(given))
	for pattern, policy := range given {
		s.Retry.Types[pattern] = policy.Over(s.Retry)
	}
	return s
}
