// Package settings has the settings of deliveries to a sink, with their defaults and checks. Go
// programs and the configuration file use the same types: the tag yaml has the key, and the first
// paragraph of a field's comment is its meaning in the reference. The zero value of a field means
// its default.
package settings

// A check needs settings with their defaults, and names them as in the file.

// OnDead is the rule for a key after one of its deliveries is dead.
type OnDead string

// The two rules for a key with a dead delivery.
const (
	// OnDeadContinue continues with the key's next delivery. It is the default.
	OnDeadContinue OnDead = "continue"
	// OnDeadHalt holds back the key's later deliveries until a person acts.
	OnDeadHalt OnDead = "halt"
)

func (r OnDead) validate(p *Problems, at string) {
	p.Require(r == OnDeadContinue || r == OnDeadHalt, "%s is %q: use %s or %s", at, r, OnDeadContinue, OnDeadHalt)
}

// Trace is the rule for the trace context of deliveries.
type Trace string

// The two rules for the trace context.
const (
	// TracePass passes the trace context on, in the metadata and in the context of Deliver. In the
	// metadata it is the published one, or that of the delivery's span if the delivery is made
	// alone. It is the default.
	TracePass Trace = "pass"
	// TraceNone removes it from both.
	TraceNone Trace = "none"
)

func (r Trace) validate(p *Problems, at string) {
	p.Require(r == TracePass || r == TraceNone, "%s is %q: use %s or %s", at, r, TracePass, TraceNone)
}
