package settings

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
	// Longest pause between two probes, at least 100ms. Pauses start at 100ms and double. Default 5s.
	MaxPause time.Duration `yaml:"max_pause" zero:"refused"`
	// Open only for a destination that cannot be reached, or that refuses the sink itself. Default
	// false.
	Off bool `yaml:"off"`
}

// DefaultMaxPause is the default of Breaker.MaxPause.
const DefaultMaxPause = 5 * time.Second

// FirstPause is the first pause between two probes of an open breaker.
const FirstPause = 100 * time.Millisecond

// WithDefaults returns the settings with the defaults of unset fields.
func (b Breaker) WithDefaults() Breaker {
	b.MaxPause = cmp.Or(b.MaxPause, DefaultMaxPause)
	return b
}

func (b Breaker) validate(p *Problems, at string) {
	p.Require(b.MaxPause >= FirstPause, "%s.max_pause is %s: use at least %s", at, b.MaxPause, FirstPause)
}
