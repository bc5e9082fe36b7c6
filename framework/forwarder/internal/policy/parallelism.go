package policy

import "cmp"

// DefaultThreshold is the default of Parallelism.Threshold.
const DefaultThreshold = 16

// maxThreshold bounds the workers of a sink.
const maxThreshold = 1 << 16

// Parallelism is the threshold of deliveries in flight to one sink: either fixed or adaptive.
type Parallelism struct {
	// Threshold is N; default 16, at most 65,536. It is 0 if Adaptive is set.
	Threshold int
	// Above is the rule while more than N deliveries are pending.
	Above Above
	// Adaptive, if set, lets N follow the sink's latency and refusals.
	Adaptive Adaptive
}

// Adaptive bounds a threshold that follows latency and refusals; see [Governor]. The zero value
// means a fixed threshold.
type Adaptive struct {
	Min int // default 1
	Max int // default 512, or Min if that is larger; at most 65,536
}

// Defaults of an Adaptive.
const (
	DefaultAdaptiveMin = 1
	DefaultAdaptiveMax = 512
)

// Above is the rule for a backlog larger than the threshold.
type Above string

// The two rules for a large backlog. Under both, a key is never in flight twice.
const (
	// AboveBounded keeps up to N deliveries in flight, however large the backlog. It is the
	// default.
	AboveBounded Above = "bounded"
	// AboveSequential delivers up to N pending deliveries all at once, and a larger backlog
	// one at a time, until it has shrunk to N.
	AboveSequential Above = "sequential"
)

// WithDefaults returns the settings with the defaults of unset fields.
func (s Parallelism) WithDefaults() Parallelism {
	if !s.IsAdaptive() {
		s.Threshold = cmp.Or(s.Threshold, DefaultThreshold)
	} else {
		s.Adaptive.Min = cmp.Or(s.Adaptive.Min, DefaultAdaptiveMin)
		s.Adaptive.Max = cmp.Or(s.Adaptive.Max, max(DefaultAdaptiveMax, s.Adaptive.Min))
	}
	s.Above = cmp.Or(s.Above, AboveBounded)
	return s
}

// IsAdaptive reports whether the threshold is adaptive.
func (s Parallelism) IsAdaptive() bool { return s.Adaptive != Adaptive{} }

// Most returns the threshold, or the maximum of an adaptive one.
func (s Parallelism) Most() int { return max(s.Threshold, s.Adaptive.Max) }

// Limit returns how many deliveries may be in flight while so many are pending, including those
// in flight.
func (s Parallelism) Limit(pending int) int {
	if s.Above == AboveSequential && pending > s.Threshold {
		return 1
	}
	return s.Most()
}

func (s Parallelism) validate(p *Problems, at string) {
	p.Require(s.Above == AboveBounded || s.Above == AboveSequential,
		"%s.above is %q: use %s or %s", at, s.Above, AboveBounded, AboveSequential)
	if !s.IsAdaptive() {
		p.Require(s.Threshold >= 1 && s.Threshold <= maxThreshold, "%s.threshold is %d: use 1 to %d", at, s.Threshold, maxThreshold)
		return
	}
	p.Require(s.Threshold == 0, "%s.threshold is %d, and %s.adaptive is set: use one of the two", at, s.Threshold, at)
	p.Require(s.Above != AboveSequential, "%s.above is %s, which needs a fixed threshold: leave out %s.adaptive", at, s.Above, at)
	p.Require(s.Adaptive.Min >= 1 && s.Adaptive.Min <= s.Adaptive.Max && s.Adaptive.Max <= maxThreshold,
		"%s.adaptive is %d to %d: use 1 <= min <= max <= %d", at, s.Adaptive.Min, s.Adaptive.Max, maxThreshold)
}
