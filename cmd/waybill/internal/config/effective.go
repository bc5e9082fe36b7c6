package config

import (
	"cmp"
	"slices"
	"time"

	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
)

// Effective is what holds for the deliveries of one type to one sink, with all
// defaults filled in.
type Effective struct {
	// Routes are the patterns that bring the type to the sink.
	Routes      []string
	Parallelism Parallelism
	Retry       Policy
	// RetryFrom is the pattern of retry.types that Retry comes from; "" for the sink's
	// own policy.
	RetryFrom string
	OnDead    forwarder.OnDead
	Timeout   time.Duration
	Rate      forwarder.Rate
}

// SinksOf lists the sinks that get a type, in alphabetical order.
func (c *Config) SinksOf(typ string) []string {
	var to []string
	for pattern, names := range c.Routes {
		if route.Matches(pattern, typ) {
			to = append(to, names...)
		}
	}
	slices.Sort(to)
	return slices.Compact(to)
}

// Effective is what holds for a type's deliveries to a sink.
func (c *Config) Effective(sink, typ string) Effective {
	s := c.Sinks[sink].withDefaults()
	retry, from := s.Retry.of(typ)
	return Effective{
		Routes:      slices.DeleteFunc(c.RoutesTo(sink), func(pattern string) bool { return !route.Matches(pattern, typ) }),
		Parallelism: s.Parallelism,
		Retry:       retry,
		RetryFrom:   from,
		OnDead:      s.OnDead,
		Timeout:     s.Timeout,
		Rate:        s.Rate,
	}
}

// withDefaults fills in what was left out, as the forwarder does. retry.types stay as
// they are: they go over the sink's own policy.
func (s Sink) withDefaults() Sink {
	s.Parallelism.Threshold = cmp.Or(s.Parallelism.Threshold, forwarder.DefaultThreshold)
	s.Parallelism.Above = cmp.Or(s.Parallelism.Above, forwarder.AboveBounded)
	s.Retry.Policy = s.Retry.withDefaults()
	s.OnDead = cmp.Or(s.OnDead, forwarder.OnDeadContinue)
	s.Timeout = cmp.Or(s.Timeout, forwarder.DefaultTimeout)
	s.Breaker.FailureShare = cmp.Or(s.Breaker.FailureShare, forwarder.DefaultFailureShare)
	s.Breaker.Among = cmp.Or(s.Breaker.Among, forwarder.DefaultAmong)
	s.Breaker.MaxPause = cmp.Or(s.Breaker.MaxPause, forwarder.DefaultMaxPause)
	return s
}

// of is the policy of a type, and the pattern of types that it comes from; "" for
// none. The type itself counts before all patterns, and of these the longest one.
func (r Retry) of(typ string) (policy Policy, from string) {
	usual := r.withDefaults()
	if policy, ok := r.Types[typ]; ok {
		return policy.over(usual), typ
	}
	for pattern := range r.Types {
		if len(pattern) > len(from) && route.Matches(pattern, typ) {
			from = pattern
		}
	}
	return r.Types[from].over(usual), from
}

func (p Policy) withDefaults() Policy {
	jitter := forwarder.DefaultJitter
	return p.over(Policy{
		MaxAttempts: forwarder.DefaultMaxAttempts,
		Initial:     forwarder.DefaultInitial,
		Multiplier:  forwarder.DefaultMultiplier,
		Max:         forwarder.DefaultMax,
		Jitter:      &jitter,
	})
}

// over fills in from another policy what was left out.
func (p Policy) over(base Policy) Policy {
	p.MaxAttempts = cmp.Or(p.MaxAttempts, base.MaxAttempts)
	p.MaxAge = cmp.Or(p.MaxAge, base.MaxAge)
	p.Initial = cmp.Or(p.Initial, base.Initial)
	p.Multiplier = cmp.Or(p.Multiplier, base.Multiplier)
	p.Max = cmp.Or(p.Max, max(base.Max, p.Initial))
	p.Jitter = cmp.Or(p.Jitter, base.Jitter)
	return p
}
