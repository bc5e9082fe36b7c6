package policy

// OnDead is a rule for a key after one of its deliveries is dead.
type OnDead string

// The two rules for a key with a dead delivery.
const (
	// OnDeadContinue goes on with the next one of the key. The default.
	OnDeadContinue OnDead = "continue"
	// OnDeadHalt holds the later ones of the key back until a person acts.
	OnDeadHalt OnDead = "halt"
)

func (r OnDead) validate(p *Problems, at string) {
	p.Require(r == OnDeadContinue || r == OnDeadHalt, "%s is %q: use %s or %s", at, r, OnDeadContinue, OnDeadHalt)
}
