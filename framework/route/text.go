package route

import (
	"context"
	"fmt"
	"reflect"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
)

// Text is a compiled expression whose value is a text, in the language of Rule.When and with its limits. In
// addition, a || b is the text b if a is empty or missing. It is immutable and safe for concurrent use.
type Text struct{ text *expression }

// CompileText compiles an expression. It fails with ErrExpression, also if the value can only be a list or a map.
func CompileText(text string) (*Text, error) {
	e, err := compile(text, expr.Patch(orElse{}))
	if err != nil {
		return nil, err
	}
	if t := e.program.Node().Type(); t != nil {
		switch t.Kind() {
		case reflect.Slice, reflect.Array:
			return nil, fmt.Errorf("%w: %q: its value is a list, not a text", ErrExpression, text)
		case reflect.Map:
			return nil, fmt.Errorf("%w: %q: its value is a map, not a text", ErrExpression, text)
		}
	}
	return &Text{e}, nil
}

// orElse makes || choose between texts.
type orElse struct{}

// Visit changes one node, whose children were visited before.
func (orElse) Visit(node *ast.Node) {
	n, ok := (*node).(*ast.BinaryNode)
	if ok && (n.Operator == "||" || n.Operator == "or") && (!isTruth(n.Left) || !isTruth(n.Right)) {
		ast.Patch(node, call("__or", n.Left, n.Right))
	}
}

func isTruth(n ast.Node) bool {
	t := n.Type()
	return t != nil && t.Kind() == reflect.Bool
}

// or returns the first of two values that is neither empty nor false.
func or(a, b any) any {
	if a == nil || a == "" || a == false {
		return b
	}
	return a
}

// Of returns the value for an envelope: a text as it is, a number or a truth value as JSON has it, and "" for
// nothing. types may be nil; see NewFacts. It fails with ErrExpression if the expression cannot be
// evaluated, or has another value, and with the error of ctx if that ends meanwhile.
func (t *Text) Of(ctx context.Context, e *notification.Envelope, types *registry.Registry) (string, error) {
	value, err := t.text.of(NewFacts(e, types).facts.within(ctx))
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
