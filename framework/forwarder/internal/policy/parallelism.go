package policy

import "cmp"

// DefaultThreshold is the default of Parallelism.Threshold.
const DefaultThreshold = 16

// maxThreshold bounds the workers of a sink.
const maxThreshold = 1 << 16

// Parallelism is the threshold of deliveries in flight to one sink: fixed, or adaptive.
type Parallelism struct {
	// Threshold is N; default 16. At most 65,536. It is 0 where N is adaptive.
	Threshold int
	// Above says what happens while more than N deliveries are pending.
	Above Above
	// Adaptive lets N follow the sink's latency and refusals; default: N is fixed.
	Adaptive Adaptive
}

// Adaptive bounds a threshold that follows latency and refusals; see [Governor]. The zero
// value is none.
type Adaptive struct {
	Min int // default 1
	Max int // default 512, or Min if that is more; at most 65,536
}

// Defaults of an Adaptive.
const (
	DefaultAdaptiveMin = 1
	DefaultAdaptiveMax = 512
)

// Above is a rule for a backlog larger than the threshold.
type Above string

// The two rules. Under both, one key is never in flight twice.
const (
	// AboveBounded keeps N deliveries in flight, however large the backlog. The
	// default.
	AboveBounded Above = "bounded"
	// AboveSequential delivers up to N pending ones all at once, and a larger
	// backlog one at a time, until it has shrunk to N.
	AboveSequential Above = "sequential"
)

// WithDefaults fills in what was left out.
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

// IsAdaptive says whether the threshold follows the sink.
func (s Parallelism) IsAdaptive() bool { return s.Adaptive != Adaptive{} }

// Most is the threshold, or the largest that an adaptive one may become.
func (s Parallelism) Most() int { return max(s.Threshold, s.Adaptive.Max) }

// Limit is how many deliveries may be in flight while so many are pending, those in
// flight included.
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
