package policy

import "cmp"

// DefaultThreshold is the default of Parallelism.Threshold.
const DefaultThreshold = 16

// maxThreshold bounds the workers of a sink.
const maxThreshold = 1 << 16

// Parallelism is the threshold of deliveries in flight to one sink.
type Parallelism struct {
	// Threshold is N; default 16. At most 65,536.
	Threshold int
	// Above says what happens while more than N deliveries are pending.
	Above Above
}

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
	s.Threshold = cmp.Or(s.Threshold, DefaultThreshold)
	s.Above = cmp.Or(s.Above, AboveBounded)
	return s
}

// Limit is how many deliveries may be in flight while so many are pending, those in
// flight included.
func (s Parallelism) Limit(pending int) int {
	if s.Above == AboveSequential && pending > s.Threshold {
		return 1
	}
	return s.Threshold
}

func (s Parallelism) validate(p *Problems, at string) {
	p.Require(s.Threshold >= 1 && s.Threshold <= maxThreshold, "%s.threshold is %d: use 1 to %d", at, s.Threshold, maxThreshold)
	p.Require(s.Above == AboveBounded || s.Above == AboveSequential,
		"%s.above is %q: use %s or %s", at, s.Above, AboveBounded, AboveSequential)
}
