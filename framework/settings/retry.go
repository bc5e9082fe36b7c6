package settings

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/route"
)

// Retry is exponential backoff with jitter: attempt n+1 comes Initial * 2^(n-1) after attempt n, at
// most Max; or Pauses[n-1] after attempt n, if Pauses are set. Each pause is varied at random by up to a
// fifth of itself. A delivery is dead when MaxAge or MaxAttempts is reached, or when it fails after
// the last of Pauses.
type Retry struct {
	// How long a delivery is retried: when its pauses would add up to more, it is dead. What a
	// breaker or a stopped forwarder adds does not count. Default: 24h, or no limit if max_attempts
	// is set.
	MaxAge time.Duration `yaml:"max_age" zero:"refused"`
	// Most attempts of a delivery, including the first; then it is dead. Default: no limit.
	MaxAttempts int `yaml:"max_attempts" zero:"refused"`
	// Pause after the first attempt. Each next one is twice as long. Default 1s.
	Initial time.Duration `yaml:"initial" zero:"refused"`
	// Longest pause. Default 15m, or initial if that is more.
	Max time.Duration `yaml:"max" zero:"refused"`
	// Pauses after each failed attempt, instead of doubling ones, such as [5s, 5m, 30m, 2h]. When a
	// delivery fails again after the last one, it is dead. It excludes max_age, max_attempts, initial
	// and max.
	Pauses []time.Duration `yaml:"pauses"`
	// Other settings for a type, for types with a prefix (order.*), or for all types (*), with the
	// keys above. The longest pattern that matches applies. Keys that are left out are taken from
	// above: with pauses none of the others, and with any of the others no pauses.
	Types map[string]Retry `yaml:"types"`
}

// Defaults of a Retry.
const (
	DefaultMaxAge  = 24 * time.Hour
	DefaultInitial = time.Second
	DefaultMax     = 15 * time.Minute
)

const (
	// multiplier is the factor by which each pause is longer than the previous one. Pauses that double
	// reach Max within a few attempts, and another factor only reaches it sooner or later.
	multiplier = 2
	// jitter is the share by which a pause varies, so that deliveries that failed together are not
	// retried together.
	jitter = 0.2
)

// WithDefaults returns the policy with the defaults of unset fields. Types stay as they are: see
// [Retry.For].
func (r Retry) WithDefaults() Retry {
	if r.Pauses != nil {
		return r
	}
	r.Initial = cmp.Or(r.Initial, DefaultInitial)
	if r.MaxAttempts == 0 {
		r.MaxAge = cmp.Or(r.MaxAge, max(DefaultMaxAge, r.Initial))
	}
	r.Max = cmp.Or(r.Max, max(DefaultMax, r.Initial))
	return r
}

// doubling returns the keys of doubling pauses that are set.
func (r Retry) doubling() (keys []string) {
	for _, f := range []struct {
		key string
		set bool
	}{{"max_age", r.MaxAge != 0}, {"max_attempts", r.MaxAttempts != 0}, {"initial", r.Initial != 0}, {"max", r.Max != 0}} {
		if f.set {
			keys = append(keys, f.key)
		}
	}
	return keys
}

// Over takes unset fields from another policy. A policy with Pauses takes none, and one with doubling pauses
// none of Pauses: its unset fields have their defaults.
func (r Retry) Over(base Retry) Retry {
	switch {
	case r.Pauses != nil:
		return r
	case base.Pauses != nil && len(r.doubling()) > 0:
		return r.WithDefaults()
	case base.Pauses != nil:
		r.Pauses = base.Pauses
		return r
	}
	r.MaxAttempts = cmp.Or(r.MaxAttempts, base.MaxAttempts)
	r.Initial = cmp.Or(r.Initial, base.Initial)
	r.Max = cmp.Or(r.Max, max(base.Max, r.Initial))
	if base.MaxAge > 0 {
		r.MaxAge = cmp.Or(r.MaxAge, max(base.MaxAge, r.Initial))
	}
	return r
}

func (r Retry) validate(p *Problems, at string) {
	before := len(p.found)
	r.validateOne(p, at)
	if len(p.found) > before {
		r = Retry{Types: r.Types}.WithDefaults() // its mistakes are reported only once
	}
	for _, pattern := range slices.Sorted(maps.Keys(r.Types)) {
		at := at + ".types." + pattern
		if err := route.ValidatePattern(pattern); err != nil {
			p.Add(fmt.Errorf("%s: %w", at, err))
		}
		p.Require(r.Types[pattern].Types == nil, "%s.types: a policy for some types cannot have types", at)
		r.Types[pattern].Over(r).validateOne(p, at)
	}
}

func (r Retry) validateOne(p *Problems, at string) {
	if r.Pauses != nil {
		p.Require(len(r.Pauses) > 0, "%s.pauses is empty: name at least one, or leave it out", at)
		p.Require(len(r.doubling()) == 0, "%s.pauses excludes %s, which is for pauses that double: leave out either", at, strings.Join(r.doubling(), ", "))
		for i, pause := range r.Pauses {
			p.Require(pause > 0, "%s.pauses[%d] is %s: use more than 0", at, i, pause)
		}
		return
	}
	p.Require(r.MaxAttempts >= 0, "%s.max_attempts is %d: use at least 1, or leave it out", at, r.MaxAttempts)
	p.Require(r.Initial > 0, "%s.initial is %s: use more than 0", at, r.Initial)
	p.Require(r.Max >= r.Initial, "%s.max is %s, less than initial %s", at, r.Max, r.Initial)
	p.Require(r.MaxAge >= 0, "%s.max_age is %s: use more than 0, or leave it out", at, r.MaxAge)
}

// Clone returns a copy that shares nothing with the policy.
func (r Retry) Clone() Retry {
	r.Pauses, r.Types = slices.Clone(r.Pauses), maps.Clone(r.Types)
	for pattern, own := range r.Types {
		r.Types[pattern] = own.Clone()
	}
	return r
}

// For returns the policy of a type, and the pattern of Types that it comes from; "" for the
// general one. The type itself takes precedence over patterns, and longer patterns over shorter
// ones.
func (r Retry) For(typ string) (policy Retry, from string) {
	if own, ok := r.Types[typ]; ok {
		return own.Over(r), typ
	}
	for pattern := range r.Types {
		if len(pattern) > len(from) && route.Matches(pattern, typ) {
			from = pattern
		}
	}
	if from == "" {
		return r, ""
	}
	return r.Types[from].Over(r), from
}

// Pause returns how long to wait after the given number of failed attempts.
func (r Retry) Pause(attempts int) time.Duration { return r.PauseBy(attempts, rand.Float64) }

// PauseBy is Pause with the caller's random numbers, from 0 up to but not including 1.
func (r Retry) PauseBy(attempts int, chance func() float64) time.Duration {
	if n := len(r.Pauses); n > 0 {
		return Vary(r.Pauses[min(max(attempts-1, 0), n-1)], chance())
	}
	longer := math.Pow(multiplier, float64(max(attempts-1, 0)))
	return Vary(time.Duration(min(float64(r.Initial)*longer, float64(r.Max))), chance())
}

// Vary varies a pause by up to a fifth of itself, by a random number from 0 up to but not including 1.
func Vary(pause time.Duration, chance float64) time.Duration {
	return time.Duration(float64(pause) * (1 + jitter*(2*chance-1)))
}

// Attempts returns the most attempts of a delivery; 0 if only MaxAge limits them.
func (r Retry) Attempts() int {
	if r.Pauses != nil {
		return len(r.Pauses) + 1
	}
	return r.MaxAttempts
}

// Exhausted reports whether a delivery that has failed this many times has no attempt left.
func (r Retry) Exhausted(attempts int) bool {
	if most := r.Attempts(); most > 0 && attempts >= most {
		return true
	}
	return r.MaxAge > 0 && r.pauses(attempts) > float64(r.MaxAge)
}

// pauses returns the sum of the first n pauses, before they vary, in nanoseconds.
func (r Retry) pauses(n int) (total float64) {
	if r.Pauses != nil {
		for _, pause := range r.Pauses[:min(n, len(r.Pauses))] {
			total += float64(pause)
		}
		return total
	}
	pause := float64(r.Initial)
	for ; n > 0 && pause < float64(r.Max); n-- {
		total += pause
		pause *= multiplier
	}
	return total + float64(n)*min(pause, float64(r.Max))
}

// Longest returns how long after its first attempt a delivery of any type may have its last one,
// without the time of the attempts and without what a breaker, a person or an outage adds.
func (r Retry) Longest() time.Duration {
	longest := r.longest()
	for _, own := range r.Types {
		longest = max(longest, own.Over(r).longest())
	}
	return longest
}

func (r Retry) longest() time.Duration {
	total := math.Inf(1)
	if most := r.Attempts(); most > 0 {
		total = r.pauses(most - 1)
	}
	if r.MaxAge > 0 {
		total = min(total, float64(r.MaxAge))
	}
	return time.Duration(min(total*(1+jitter), math.MaxInt64/2))
}

// UnknownAge is how long a delivery whose type or version the sink does not know (sinks.ClassUnknown) is retried, from
// when it was first parked; after that it is dead. During a rolling deployment an old process reads what a new one
// publishes, and must not let it die: three days, the default retention of the log, are enough for one over a weekend.
// These attempts do not count towards MaxAttempts.
const UnknownAge = 72 * time.Hour

// maxUnknownPause bounds the pause between two attempts of a delivery of an unknown type: a
// deployment may add the type at any moment.
const maxUnknownPause = time.Minute

// PauseUnknown returns how long a delivery of an unknown type waits for its next attempt, by how
// long it has been parked: as long again, at least the first pause and at most a minute.
func (r Retry) PauseUnknown(parked time.Duration) time.Duration {
	first := r.Initial
	if len(r.Pauses) > 0 {
		first = r.Pauses[0]
	}
	return min(max(parked, first), max(maxUnknownPause, first))
}
