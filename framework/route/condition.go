package route

import (
	"context"
	"fmt"

	"github.com/expr-lang/expr"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
)

// Condition is a compiled condition outside of a route, in the language of Rule.When and with its limits.
// The zero value always holds. It is immutable and safe for concurrent use.
type Condition struct {
	when *expression // nil: always
}

// CompileCondition compiles a condition; "" always holds. It fails with ErrExpression.
func CompileCondition(text string) (*Condition, error) {
	if text == "" {
		return &Condition{}, nil
	}
	when, err := compile(text, expr.AsBool())
	if err != nil {
		return nil, err
	}
	return &Condition{when}, nil
}

// Holds reports whether the condition holds for an envelope. types may be nil; see NewFacts. It fails as
// Facts.Holds does.
func (c *Condition) Holds(ctx context.Context, e *notification.Envelope, types *registry.Registry) (bool, error) {
	return NewFacts(e, types).Holds(ctx, c)
}

// Facts are what conditions see of one notification. They decode its payload once, when the first
// condition needs it. They must not be used concurrently, and the envelope must not change meanwhile.
type Facts struct{ facts *facts }

// NewFacts returns the facts of an envelope. If its type is registered, conditions see the present name
// and the newest version; types may be nil.
func NewFacts(e *notification.Envelope, types *registry.Registry) *Facts {
	name := e.Type
	if types != nil {
		if info, known := types.Lookup(name); known {
			name = info.Name
		}
	}
	return &Facts{newFacts(e, name, types)}
}

// Holds reports whether a condition holds. Each condition may use as much as all expressions of a route
// about one notification, whatever others have used. It fails with ErrExpression if the condition cannot be
// evaluated, also with ErrNewerVersion if a newer program can do so, and with the error of ctx if that
// ends meanwhile.
func (f *Facts) Holds(ctx context.Context, c *Condition) (bool, error) {
	if c.when == nil {
		return true, nil
	}
	holds, err := c.when.of(f.facts.within(ctx))
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil:
		return false, fmt.Errorf("%w: %w", ErrExpression, err)
	}
	return holds.(bool), nil
}
