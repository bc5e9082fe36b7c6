package policy

// Trace is the rule for the trace context of deliveries.
type Trace string

// The two rules for the trace context.
const (
	// TracePass passes it on to the sink. It is the default.
	TracePass Trace = "pass"
	// TraceNone hides it from the sink.
	TraceNone Trace = "none"
)

func (r Trace) validate(p *Problems, at string) {
	p.Require(r == TracePass || r == TraceNone, "%s is %q: use %s or %s", at, r, TracePass, TraceNone)
}
