package policy

import (
	"cmp"
	"time"
)

// Breaker says when to pause a whole sink because its destination fails.
//
// It opens when the destination is unavailable (sinks.Unavailable), when nearly all recent
// attempts of different keys failed temporarily, as with an endpoint that answers 500 to
// everything, when deliveries of two or more keys have failed and none has succeeded for two
// minutes, and when ten deliveries in a row were refused permanently, whatever their keys.
// While it is open, nothing is parked and no attempt is spent: single deliveries probe the
// destination, after pauses that grow from 100 ms to MaxPause, until one succeeds; types and
// keys that did not fail before come first. Only a probe that is refused permanently spends
// its attempt.
type Breaker struct {
	// FailureShare is the share of failures among the last Among attempts that opens it;
	// default 0.9, above 0 and at most 1. Of several failures of one key only the first counts.
	FailureShare float64
	Among        int           // default 20, 1 to 10,000
	MaxPause     time.Duration // default 5 s, at least 100 ms
	// Off makes it open only if the destination is unavailable.
	Off bool
}

// Defaults of a Breaker.
const (
	DefaultFailureShare = 0.9
	DefaultAmong        = 20
	DefaultMaxPause     = 5 * time.Second
)

const (
	firstPause = 100 * time.Millisecond
	maxAmong   = 10_000
)

// WithDefaults returns the settings with the defaults of unset fields.
func (b Breaker) WithDefaults() Breaker {
	b.FailureShare = cmp.Or(b.FailureShare, DefaultFailureShare)
	b.Among = cmp.Or(b.Among, DefaultAmong)
	b.MaxPause = cmp.Or(b.MaxPause, DefaultMaxPause)
	return b
}

func (b Breaker) validate(p *Problems, at string) {
	p.Require(b.FailureShare > 0 && b.FailureShare <= 1, "%s.failure_share is %g: use more than 0, at most 1", at, b.FailureShare)
	p.Require(b.Among >= 1 && b.Among <= maxAmong, "%s.among is %d: use 1 to %d", at, b.Among, maxAmong)
	p.Require(b.MaxPause >= firstPause, "%s.max_pause is %s: use at least %s", at, b.MaxPause, firstPause)
}
