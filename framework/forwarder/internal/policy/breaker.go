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
	MaxPause time.Duration // default 5 s, at least 100 ms
	// Off makes it open only if the destination is unavailable.
	Off bool
}

// DefaultMaxPause is the default of Breaker.MaxPause.
const DefaultMaxPause = 5 * time.Second

const firstPause = 100 * time.Millisecond

// WithDefaults returns the settings with the defaults of unset fields.
func (b Breaker) WithDefaults() Breaker {
	b.MaxPause = cmp.Or(b.MaxPause, DefaultMaxPause)
	return b
}

func (b Breaker) validate(p *Problems, at string) {
	p.Require(b.MaxPause >= firstPause, "%s.max_pause is %s: use at least %s", at, b.MaxPause, firstPause)
}
