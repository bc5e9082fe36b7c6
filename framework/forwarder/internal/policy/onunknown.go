package policy

import (
	"cmp"
	"time"
)

// DefaultUnknownRetryFor is the default of OnUnknown.RetryFor.
const DefaultUnknownRetryFor = 24 * time.Hour

// OnUnknown is for deliveries whose type or version the sink does not know
// (sinks.ClassUnknown). While a rolling deploy is under way, an old process reads what
// a new one publishes, and must not kill it.
type OnUnknown struct {
	// RetryFor is how long such a delivery is tried again, counted from the moment
	// at which it was first parked; it is dead then. The pause grows with that age,
	// from Retry.Initial to 1 minute. Attempts on which the type was unknown do not
	// count against Retry.MaxAttempts. Default 24 h.
	RetryFor time.Duration
}

// WithDefaults fills in what was left out.
func (o OnUnknown) WithDefaults() OnUnknown {
	o.RetryFor = cmp.Or(o.RetryFor, DefaultUnknownRetryFor)
	return o
}

func (o OnUnknown) validate(p *Problems, at string) {
	p.Require(o.RetryFor > 0, "%s.retry_for is %s: use more than 0", at, o.RetryFor)
}
