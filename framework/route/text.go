package route

import (
	"context"
	"fmt"

	"github.com/waybill-go/waybill/framework/notification"
)

// Text is a compiled expression whose value is a text, in the language of Rule.When and with its limits. It is
// immutable and safe for concurrent use.
type Text struct{ text *expression }

// CompileText compiles an expression. It fails with ErrExpression.
func CompileText(text string) (*Text, error) {
	e, err := compile(text)
	if err != nil {
		return nil, err
	}
	return &Text{e}, nil
}

// Value returns the value of a text for an envelope whose type is routed to the sink: a text as it is, a number or
// a truth value as JSON has it, and "" for nothing. It fails with ErrExpression if the expression cannot
// be evaluated, or has another value, and with the error of ctx if that ends meanwhile.
func (p *Path) Value(ctx context.Context, t *Text, e *notification.Envelope) (string, error) {
	value, err := t.text.of(p.factsOf(ctx, e))
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrExpression, err)
	}
	switch value := value.(type) {
	case nil:
		return "", nil
	case string:
		return value, nil
	case bool, int, float64, fmt.Stringer:
		return fmt.Sprint(value), nil
	}
	return "", fmt.Errorf("%w: its value is %T, not a text", ErrExpression, value)
}
