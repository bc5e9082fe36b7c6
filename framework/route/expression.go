package route

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
)

// environment holds the names that an expression can use.
type environment struct {
	ID         string            `expr:"id"`
	Type       string            `expr:"type"`
	Version    int               `expr:"version"`
	Key        string            `expr:"key"`
	OccurredOn time.Time         `expr:"occurred_on"`
	Metadata   map[string]string `expr:"metadata"`
	Payload    any               `expr:"payload"`

	// Step and Sized are called by the code that meter adds.
	Step  func() bool   `expr:"__step"`
	Sized func(any) any `expr:"__sized"`
}

// expression is a compiled expression. It is immutable and safe for concurrent use.
type expression struct {
	program      *vm.Program
	needsPayload bool
}

func compileCondition(text string) (*expression, error) { return compile(text, expr.AsBool()) }

func compileValue(text string) (*expression, error) { return compile(text) }

func compile(text string, options ...expr.Option) (*expression, error) {
	options = append(options, expr.Env(environment{}), expr.Patch(meter{}),
		expr.DisableBuiltin("now"),  // the result must depend on the notification alone
		expr.DisableBuiltin("uniq")) // takes time with the square of the list's length
	program, err := expr.Compile(text, options...)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %s", ErrExpression, text, oneLine(err))
	}
	e := &expression{program: program}
	root := program.Node()
	ast.Walk(&root, visitor(func(n ast.Node) {
		if name, ok := n.(*ast.IdentifierNode); ok {
			e.needsPayload = e.needsPayload || name.Value == "payload" || name.Value == "$env"
		}
	}))
	return e, nil
}

// visitor is a function that is called with each node of an expression.
type visitor func(node ast.Node)

// Visit calls the function.
func (v visitor) Visit(node *ast.Node) { v(*node) }

// oneLine returns the first line of an error. It names the position in the expression; the
// other lines draw it.
func oneLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}

// facts is what expressions are evaluated on: one notification. The payload is decoded when
// an expression first needs it.
type facts struct {
	envelope *notification.Envelope
	registry *registry.Registry // nil: the types are not known
	names    environment
	decoded  bool
	err      error // of decoding
	spent    int   // of the budget
}

// factsOf returns the facts of an envelope, under the present name of its type.
func (p *Path) factsOf(e *notification.Envelope) *facts {
	f := &facts{envelope: e, registry: p.table.registry, names: environment{
		ID: e.ID, Type: p.table.TypeOf(e.Type), Version: e.Version, Key: e.Key, OccurredOn: e.OccurredOn, Metadata: e.Metadata,
	}}
	f.names.Step, f.names.Sized = f.step, f.sized
	return f
}

// of evaluates the expression.
func (e *expression) of(f *facts) (any, error) {
	if e.needsPayload && !f.decoded {
		f.names.Payload, f.err = f.payload()
		f.decoded = true
	}
	if e.needsPayload && f.err != nil {
		return nil, f.err
	}
	value, err := expr.Run(e.program, &f.names)
	if err != nil {
		return nil, errors.New(oneLine(err))
	}
	return value, nil
}

func decode(payload []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return numbers(value), nil
}

// numbers converts JSON numbers to int or float64, so that expressions can calculate with
// them. Numbers that would lose digits stay json.Number: a rule can pick them, but not compare
// them.
func numbers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name := range v {
			v[name] = numbers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	case json.Number:
		return number(v)
	}
	return value
}

// exactDigits is the number of decimal digits that a float64 keeps (IEEE 754; C's DBL_DIG).
const exactDigits = 15

func number(n json.Number) any {
	if whole, err := strconv.Atoi(n.String()); err == nil {
		return whole
	}
	mantissa, _, _ := strings.Cut(strings.ToLower(n.String()), "e")
	if len(strings.Trim(strings.ReplaceAll(mantissa, ".", ""), "-0")) > exactDigits {
		return n
	}
	float, err := n.Float64()
	if err != nil {
		return n
	}
	return float
}

func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
