package route

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/notification"
)

// Path is the rules that lead to one sink. It is immutable and safe for concurrent
// use.
type Path struct {
	table *Table
	rules []*rule // the first one that holds counts
	plain bool    // everything goes as it is
}

// To returns the path to a sink.
func (t *Table) To(sink string) *Path {
	p := &Path{table: t, plain: true}
	for _, pattern := range slices.SortedFunc(maps.Keys(t.rules), closestFirst) {
		for _, r := range t.rules[pattern] {
			if r.Sink == sink {
				p.rules = append(p.rules, r)
				p.plain = p.plain && r.when == nil && r.payload == nil
			}
		}
	}
	return p
}

// closestFirst orders patterns that match one type: the type itself, then longer
// beginnings before shorter ones.
func closestFirst(a, b string) int {
	return cmp.Or(cmp.Compare(beginning(a), beginning(b)), cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
}

// beginning is 1 for the beginning of types, 0 for a type.
func beginning(pattern string) int {
	if strings.HasSuffix(pattern, "*") {
		return 1
	}
	return 0
}

// Equal says whether the rules of both paths are the same.
func (p *Path) Equal(other *Path) bool {
	return slices.EqualFunc(p.rules, other.rules, func(a, b *rule) bool {
		return a.pattern == b.pattern && a.Sink == b.Sink && a.When == b.When && maps.Equal(a.Payload, b.Payload)
	})
}

// Plain says that whatever a route's pattern matches goes to the sink as it is.
func (p *Path) Plain() bool { return p.plain }

// Admits says whether an envelope of a type that is routed to the sink goes there.
// The error is ErrExpression, and nothing is known then: a condition cannot be asked
// of the envelope.
func (p *Path) Admits(e *notification.Envelope) (bool, error) {
	r, err := p.rule(p.factsOf(e))
	return r != nil && err == nil, err
}

// Shape returns what the sink gets of an envelope: itself, or a copy with another
// payload; nil if no condition holds. The error is ErrExpression.
func (p *Path) Shape(e *notification.Envelope) (*notification.Envelope, error) {
	f := p.factsOf(e)
	r, err := p.rule(f)
	if r == nil || err != nil {
		return nil, err
	}
	return r.shape(f)
}

// Step is a rule on the path to a sink.
type Step struct {
	// Pattern is the route's that the rule is of.
	Pattern string
	Rule
}

// Steps lists the rules that lead a type to the sink, in the order in which they are
// asked.
func (p *Path) Steps(typ string) []Step {
	var steps []Step
	for _, r := range p.rules {
		if p.table.matches(r.pattern, typ) {
			steps = append(steps, Step{Pattern: r.pattern, Rule: r.Rule})
		}
	}
	return steps
}

// rule is the first one that is for a notification; nil if none is.
func (p *Path) rule(f *facts) (*rule, error) {
	for _, r := range p.rules {
		if !p.table.matches(r.pattern, f.envelope.Type) {
			continue
		}
		if holds, err := r.holds(f); holds || err != nil {
			return r, err
		}
	}
	return nil, nil
}
