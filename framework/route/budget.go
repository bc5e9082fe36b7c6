package route

import (
	"context"
	"encoding/json"
	"fmt"
	"math/bits"
	"reflect"
)

// An expression can take very long: an any within an any over a payload of 129 KB took 22 s. So
// each round of a loop, and the size of each value that an operation goes through or makes, is
// counted, and an expression that uses too much fails. Time is not measured: an expression must
// not fail because the machine is busy. It only ends with its context.
const (
	// budget bounds all expressions about one notification for one sink together. A unit takes
	// 0.1 to 0.6 µs.
	budget = 200_000
	// outputBudget bounds a picked payload, in the same units.
	outputBudget = 10 * budget

	unitsOfElement = 2   // for each element of a list or a map
	bytesOfUnit    = 8   // of a text
	nodesOfUnit    = 8   // of the body of a loop, for each round
	unitsOfZone    = 200 // for finding a time zone, which reads a file
	unitsOfPattern = 16  // for each byte of a pattern that is not constant
	matchesOfUnit  = 32  // bytes of a text times instructions of a pattern
)

// meter counts what expressions use of a budget.
type meter struct {
	ctx  context.Context
	left int
}

// spend panics if the budget is used up or the context has ended; expr turns that into an error.
func (m *meter) spend(units int) {
	const pace = 1024 // units between two looks at the context
	before := m.left
	if m.left -= units; m.left < 0 {
		panic(fmt.Errorf("it takes too long: more than %d steps; loop over less, or publish the value that the expression computes", budget))
	}
	if before/pace != m.left/pace {
		if err := m.ctx.Err(); err != nil {
			panic(err)
		}
	}
}

// The ways in which an operation goes through a value.
const (
	byText     = iota // through a text, but not through a list or a map
	byElement         // through a text, or the elements of a list or a map
	byContent         // through everything inside
	byIndented        // as indented JSON
	byOrder           // through everything inside, to sort it
	byZone            // as the name of a time zone
)

// count spends what an operation on the value costs.
func (m *meter) count(way int, value any) any {
	switch way {
	case byText:
		if text := reflect.ValueOf(value); text.Kind() == reflect.String {
			m.spend(text.Len() / bytesOfUnit)
		}
	case byElement:
		m.spend(own(value))
	case byContent:
		m.content(value, 0, 0)
	case byIndented:
		m.content(value, 1, 1)
	case byOrder:
		before := m.left
		m.content(value, 0, 0)
		m.spend((before - m.left) * bits.Len(uint(own(value))))
	case byZone:
		m.spend(unitsOfZone + own(value))
	}
	return value
}

// text is count for a text. It keeps the type, by which expr finds mistakes.
func (m *meter) text(s string) string {
	m.spend(len(s) / bytesOfUnit)
	return s
}

// own is the cost of a value without what is inside of its elements.
func own(value any) int {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.String:
		return v.Len() / bytesOfUnit
	case reflect.Slice, reflect.Map, reflect.Array:
		return v.Len() * unitsOfElement
	}
	return 0
}

// content spends the cost of a value and everything inside. If deeper is 1, an element costs more
// the deeper it is.
func (m *meter) content(value any, depth, deeper int) {
	m.spend(own(value))
	inside := func(element any) {
		m.spend(depth / 4) // an indentation has two bytes for each level
		m.content(element, depth+deeper, deeper)
	}
	switch v := value.(type) {
	case nil, string, json.Number, int, float64, bool:
	case []any:
		for _, element := range v {
			inside(element)
		}
	case map[string]any:
		for name, element := range v {
			m.text(name)
			inside(element)
		}
	case *environment:
		m.content(v.Metadata, depth, deeper)
		m.content(v.Payload, depth, deeper)
	default:
		m.reflected(reflect.ValueOf(value), inside)
	}
}

// reflected calls inside with the elements of a list or a map that an expression has made.
func (m *meter) reflected(v reflect.Value, inside func(element any)) {
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			inside(v.Index(i).Interface())
		}
	case reflect.Map:
		for entry := v.MapRange(); entry.Next(); {
			inside(entry.Key().Interface())
			inside(entry.Value().Interface())
		}
	}
}
