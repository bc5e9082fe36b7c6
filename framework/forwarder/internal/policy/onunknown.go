package policy

import (
	"cmp"
	"time"
)

// DefaultUnknownRetryFor is the default of OnUnknown.RetryFor.
const DefaultUnknownRetryFor = 24 * time.Hour

// OnUnknown is the rule for deliveries whose type or version the sink does not know
// (sinks.ClassUnknown). During a rolling deployment, an old process reads what a new one
// publishes, and must not let it die.
type OnUnknown struct {
	// RetryFor is how long to try such a delivery again, counted from when it was first
	// parked; after that it is dead. The pause grows with that age, from Retry.Initial to 1
	// minute. Attempts at which the type was unknown do not count towards Retry.MaxAttempts.
	// Default 24 h.
	RetryFor time.Duration
}

// WithDefaults returns the settings with the defaults of unset fields.
func (o OnUnknown) WithDefaults() OnUnknown {
	o.RetryFor = cmp.Or(o.RetryFor, DefaultUnknownRetryFor)
	return o
}

func (o OnUnknown) validate(p *Problems, at string) {
	p.Require(o.RetryFor > 0, "%s.retry_for is %s: use more than 0", at, o.RetryFor)
}
