package policy

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
