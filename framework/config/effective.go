package config

import (
	"time"

	"github.com/waybill-go/waybill/framework/forwarder"
)

// Effective is what holds for the deliveries of one type to one sink, with all
// defaults filled in.
type Effective struct {
	Parallelism Parallelism
	Retry       Policy
	// RetryFrom is the pattern of retry.types that Retry comes from; "" for the sink's
	// own policy.
	RetryFrom string
	OnDead    forwarder.OnDead
	Timeout   time.Duration
	Rate      forwarder.Rate
}

// Effective is what holds for a type's deliveries to a sink.
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

// MaxAttempts is how many attempts a delivery of a type to a sink has.
func (c *Config) MaxAttempts(sink, typ string) int { return c.Effective(sink, typ).Retry.MaxAttempts }

// withDefaults fills in what was left out, as the forwarder does.
func (s Sink) withDefaults() Sink {
	its := s.forwarder().WithDefaults()
	types := make(map[string]Policy, len(s.Retry.Types))
	for pattern := range s.Retry.Types {
		policy, _ := its.Retry.For(pattern)
		types[pattern] = policyOf(policy)
	}
	s.Parallelism = parallelismOf(its.Parallelism)
	s.Retry = Retry{Policy: policyOf(its.Retry), Types: types}
	s.OnDead, s.OnUnknown, s.Timeout, s.Breaker = its.OnDead, OnUnknown(its.OnUnknown), its.Timeout, Breaker(its.Breaker)
	return s
}

// parallelismOf is a parallelism as the file has it.
func parallelismOf(p forwarder.Parallelism) Parallelism {
	its := Parallelism{Threshold: p.Threshold, Above: p.Above}
	if p.IsAdaptive() {
		its.Adaptive = new(Adaptive(p.Adaptive))
		its.Above = "" // of a fixed one
	}
	return its
}

// policyOf is a policy as the file has it.
func policyOf(r forwarder.Retry) Policy {
	if r.Jitter == noJitter {
		r.Jitter = 0
	}
	return Policy{MaxAttempts: r.MaxAttempts, MaxAge: r.MaxAge, Initial: r.Initial, Multiplier: r.Multiplier, Max: r.Max, Jitter: &r.Jitter}
}
