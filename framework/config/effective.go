package config

import (
	"time"

	"github.com/waybill-go/waybill/framework/forwarder"
)

// Effective has the settings of the deliveries of one type to one sink, with defaults filled
// in.
type Effective struct {
	// Parallelism limits the sink's deliveries in flight, of all types together.
	Parallelism Parallelism
	// Retry is the retry policy of the type.
	Retry Policy
	// RetryFrom is the pattern of retry.types from which Retry comes; "" if the type has the
	// sink's own policy.
	RetryFrom string
	// OnDead is what happens to later deliveries of a key after one is dead.
	OnDead forwarder.OnDead
	// Timeout limits one attempt.
	Timeout time.Duration
	// Rate limits the sink's deliveries, of all types together; zero means no limit.
	Rate forwarder.Rate
}

// Effective returns the settings of a type's deliveries to a sink.
func (c *Config) Effective(sink, typ string) Effective {
	s := c.Sinks[sink].forwarder().WithDefaults()
	retry, from := s.Retry.For(typ)
	return Effective{
		Parallelism: parallelismOf(s.Parallelism),
		Retry:       policyOf(retry),
		RetryFrom:   from,
		OnDead:      s.OnDead,
		Timeout:     s.Timeout,
		Rate:        s.Rate,
	}
}

// MaxAttempts returns how many attempts a delivery of a type to a sink has.
func (c *Config) MaxAttempts(sink, typ string) int { return c.Effective(sink, typ).Retry.MaxAttempts }

// withDefaults returns the sink with the forwarder's defaults filled in.
func (s Sink) withDefaults() Sink {
	its := s.forwarder().WithDefaults()
	types := make(map[string]Policy, len(s.Retry.Types))
	for pattern := range s.Retry.Types {
		policy, _ := its.Retry.For(pattern)
		types[pattern] = policyOf(policy)
	}
	s.Parallelism = parallelismOf(its.Parallelism)
	s.Retry = Retry{Policy: policyOf(its.Retry), Types: types}
	s.OnDead, s.Timeout, s.Breaker = its.OnDead, its.Timeout, Breaker(its.Breaker)
	return s
}

// parallelismOf returns a parallelism in the form of the file.
func parallelismOf(p forwarder.Parallelism) Parallelism {
	its := Parallelism{Threshold: p.Threshold, Above: p.Above}
	if p.IsAdaptive() {
		its.Adaptive = new(Adaptive(p.Adaptive))
		its.Above = "" // applies to a fixed threshold only
	}
	return its
}

// policyOf returns a policy in the form of the file.
func policyOf(r forwarder.Retry) Policy {
	return Policy{MaxAttempts: r.MaxAttempts, MaxAge: r.MaxAge, Initial: r.Initial, Max: r.Max}
}
