package route

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/waybill-go/waybill/framework/notification"
)

// Path holds the rules that lead to one sink. It is immutable and safe for concurrent use.
type Path struct {
	table *Table
	rules []*rule // the first that holds applies
	plain bool    // no rule has a condition or picks a payload, and one matches all that the filter selects
}

// To returns the path to a sink.
func (t *Table) To(sink string) *Path {
	p := &Path{table: t, plain: !t.Filter(sink).All()} // see Table.Filter
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

// closestFirst orders patterns that match the same type: the type itself first, then longer
// prefixes before shorter ones.
func closestFirst(a, b string) int {
	return cmp.Or(cmp.Compare(beginning(a), beginning(b)), cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
}

// beginning returns 1 for a pattern that is a prefix, 0 for a type.
func beginning(pattern string) int {
	if strings.HasSuffix(pattern, "*") {
		return 1
	}
	return 0
}

// Equal reports whether both paths have the same rules.
func (p *Path) Equal(other *Path) bool {
	return slices.EqualFunc(p.rules, other.rules, func(a, b *rule) bool {
		return a.pattern == b.pattern && a.Sink == b.Sink && a.When == b.When && maps.Equal(a.Payload, b.Payload)
	})
}

// Plain reports whether the sink gets all matching envelopes unchanged.
func (p *Path) Plain() bool { return p.plain }

// Admits reports whether an envelope, whose type is routed to the sink, goes there. It fails
// with ErrExpression if a condition cannot be evaluated, also with ErrNewerVersion if a newer
// program can do so, and with the error of ctx if that ends meanwhile.
func (p *Path) Admits(ctx context.Context, e *notification.Envelope) (bool, error) {
	r, err := p.rule(p.factsOf(ctx, e))
	return r != nil && err == nil, err
}

// Shape returns the envelope that the sink gets: e itself, or a copy with the picked payload;
// nil if no condition holds. It fails as Admits does.
func (p *Path) Shape(ctx context.Context, e *notification.Envelope) (*notification.Envelope, error) {
	f := p.factsOf(ctx, e)
	r, err := p.rule(f)
	if r == nil || err != nil {
		return nil, err
	}
	return r.shape(f)
}

// factsOf returns the facts of an envelope.
func (p *Path) factsOf(ctx context.Context, e *notification.Envelope) *facts {
	return newFacts(e, p.table.TypeOf(e.Type), p.table.registry).within(ctx)
}

// Step is a rule on the path to a sink.
type Step struct {
	// Pattern is the pattern of the rule's route.
	Pattern string
	Rule
}

// Steps returns the rules that lead a type to the sink, in the order of their evaluation.
func (p *Path) Steps(typ string) []Step {
	var steps []Step
	for _, r := range p.rules {
		if p.table.matches(r.pattern, typ) {
			steps = append(steps, Step{Pattern: r.pattern, Rule: r.Rule})
		}
	}
	return steps
}

// rule returns the first rule that holds for a notification, or nil.
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
