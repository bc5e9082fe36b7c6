package settings

import "cmp"

// DefaultThreshold is the default of Parallelism.Threshold.
const DefaultThreshold = 16

// maxThreshold bounds the workers of a sink.
const maxThreshold = 1 << 16

// Parallelism is the threshold of deliveries in flight to one sink: either fixed or adaptive.
type Parallelism struct {
	// Most deliveries in flight, 1 to 65536. Default 16.
	Threshold int `yaml:"threshold" zero:"refused"`
	// What happens while more than threshold are pending: bounded (threshold in flight at once) or
	// sequential (one at a time, until no more than threshold are pending). Default bounded.
	Above Above `yaml:"above" enum:"bounded,sequential"`
	// Instead of a fixed threshold, one that adapts to the latency and the refusals of the
	// destination; a sink with several destinations has one for each. Default: none.
	Adaptive Adaptive `yaml:"adaptive"`
}

// Adaptive bounds a threshold that follows latency and refusals. If the sink is a sinks.Addresser
// without Fairness, each destination has its own threshold, and Max bounds all of them together. The
// zero value means a fixed threshold.
type Adaptive struct {
	// Smallest threshold. Default 1.
	Min int `yaml:"min" zero:"refused"`
	// Largest threshold, up to 65536, over all destinations together. Default 512, or min if that is
	// more.
	Max int `yaml:"max" zero:"refused"`
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
