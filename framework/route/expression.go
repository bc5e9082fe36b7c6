package route

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/registry"
	"github.com/waybill-go/waybill/sinks"
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

	Replace func(text, old, with any, limit ...int) string `expr:"replace"`
	Repeat  func(text any, n int) string                   `expr:"repeat"`
	Join    func(list any, glue ...string) string          `expr:"join"`
	Trim    func(text any, characters ...string) string    `expr:"trim"`

	// Or is called by what orElse adds, and the others by what metered adds.
	Or      func(a, b any) any                   `expr:"__or"`
	Step    func(units int) bool                 `expr:"__step"`
	Text    func(string) string                  `expr:"__text"`
	Count   func(way int, value any) any         `expr:"__count"`
	Matched func(text any, instructions int) any `expr:"__matched"`
	Matches func(text, pattern any) bool         `expr:"__matches"`
}

// expression is a compiled expression. It is immutable and safe for concurrent use.
type expression struct {
	program      *vm.Program
	needsPayload bool
	reads        []registry.Pointer // of the payload
}

func compile(text string, options ...expr.Option) (*expression, error) {
	options = append(options, expr.Env(environment{}), expr.Patch(metered{}))
	program, err := expr.Compile(text, append(options, replaced...)...)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %s", ErrExpression, text, oneLine(err))
	}
	e := &expression{program: program}
	root := program.Node()
	e.reads = readsOf(&root)
	e.needsPayload = len(e.reads) > 0
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
	meter    meter
}

// newFacts returns the facts of an envelope, under the present name of its type.
func newFacts(e *notification.Envelope, name string, types *registry.Registry) *facts {
	f := &facts{envelope: e, registry: types, names: environment{
		ID: e.ID, Type: name, Version: e.Version, Key: e.Key, OccurredOn: e.OccurredOn, Metadata: e.Metadata,
	}}
	m := &f.meter
	f.names.Or = or
	f.names.Replace, f.names.Repeat, f.names.Join, f.names.Trim = m.replace, m.repeat, m.join, m.trim
	f.names.Step = func(units int) bool { m.spend(units); return true }
	f.names.Text, f.names.Count, f.names.Matched, f.names.Matches = m.text, m.count, m.matched, m.matches
	return f
}

// within gives the expressions that follow a new budget, until ctx ends.
func (f *facts) within(ctx context.Context) *facts {
	f.meter.ctx, f.meter.left = ctx, budget
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
	if ended := f.meter.ctx.Err(); ended != nil {
		return nil, ended
	}
	if err != nil {
		return nil, f.failure(oneLine(err))
	}
	return value, nil
}

// failure returns an error of evaluating an expression. If it quotes a text of the notification, as int and date do, it
// is kept like the answer of a destination.
func (f *facts) failure(text string) error {
	metadata := slices.Collect(maps.Values(f.names.Metadata))
	if repeats(text, f.names.Payload) || repeats(text, f.names.Key) || slices.ContainsFunc(metadata, func(v string) bool { return repeats(text, v) }) {
		return sinks.WithAnswer(errQuotes, text)
	}
	return errors.New(text)
}

// errQuotes is what logs have of an error that quotes the notification.
var errQuotes = errors.New("it cannot be evaluated for a value of the notification")

// repeats reports whether a text repeats a text in a value.
func repeats(text string, value any) bool {
	switch value := value.(type) {
	case string:
		return len(value) > 2 && strings.Contains(text, value)
	case []any:
		return slices.ContainsFunc(value, func(v any) bool { return repeats(text, v) })
	case map[string]any:
		return slices.ContainsFunc(slices.Collect(maps.Values(value)), func(v any) bool { return repeats(text, v) })
	}
	return false
}

// encode encodes a picked payload. It fails if that would be too large: a few parts of a payload can
// be picked many times.
func (f *facts) encode(picked map[string]any) (payload []byte, err error) {
	size := meter{f.meter.ctx, outputBudget}
	defer func() {
		if p := recover(); p != nil {
			payload, err = nil, errors.New("the picked payload is too large")
		}
	}()
	size.content(picked, 0, 0)
	return encode(picked)
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
