package forwarder

import (
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Retry is exponential backoff with jitter: attempt n+1 comes
// Initial * Multiplier^(n-1) after attempt n, at most Max, each pause made up to
// Jitter of itself shorter or longer by chance.
type Retry struct {
	// MaxAttempts is how many attempts a delivery has, the first included, before
	// it is dead; default 12.
	MaxAttempts int
	Initial     time.Duration // default 1 s
	Multiplier  float64       // default 2, at least 1
	Max         time.Duration // default 15 min
	// Jitter is a share of the pause, 0 to 1; default 0.2.
	Jitter float64
}

// Defaults of a Retry.
const (
	DefaultMaxAttempts = 12
	DefaultInitial     = time.Second
	DefaultMultiplier  = 2.0
	DefaultMax         = 15 * time.Minute
	DefaultJitter      = 0.2
)

func (r Retry) withDefaults() Retry {
	setDefault(&r.MaxAttempts, DefaultMaxAttempts)
	setDefault(&r.Initial, DefaultInitial)
	setDefault(&r.Multiplier, DefaultMultiplier)
	setDefault(&r.Max, max(DefaultMax, r.Initial))
	setDefault(&r.Jitter, DefaultJitter)
	return r
}

func (r Retry) validate(p *problems, at string) {
	p.require(r.MaxAttempts >= 1, "%s.max_attempts is %d: use at least 1", at, r.MaxAttempts)
	p.require(r.Initial > 0, "%s.initial is %s: use more than 0", at, r.Initial)
	p.require(r.Multiplier >= 1, "%s.multiplier is %g: use at least 1", at, r.Multiplier)
	p.require(r.Max >= r.Initial, "%s.max is %s, less than initial %s", at, r.Max, r.Initial)
	p.require(r.Jitter >= 0 && r.Jitter <= 1, "%s.jitter is %g: use 0 to 1", at, r.Jitter)
}

// pause is how long to wait after the given number of failed attempts.
func (r Retry) pause(attempts int) time.Duration {
	b := r.backOff()
	for range min(attempts-1, 1000) {
		b.NextBackOff()
	}
	return b.NextBackOff()
}

func (r Retry) backOff() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval:     r.Initial,
		Multiplier:          r.Multiplier,
		MaxInterval:         r.Max,
		RandomizationFactor: r.Jitter,
	}
}

// reconnect is the pace at which a failing database, or a destination that
// cannot be reached, is tried again.
func reconnect() *backoff.ExponentialBackOff {
	return Retry{Initial: 100 * time.Millisecond, Multiplier: 2, Max: 5 * time.Second, Jitter: 0.2}.backOff()
}
