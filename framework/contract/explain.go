package contract

import (
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Limits of what an error says of a payload, and of the payloads that are judged: without them, a number such
// as 1e999999999 would take minutes.
const (
	maxFaults   = 5
	maxNames    = 5
	maxShown    = 64  // bytes of a name
	maxExponent = 400 // beyond that of every float
	maxDigits   = 1000
	maxNesting  = 500
)

// explain names what is wrong with a payload, by JSON Pointers (RFC 6901) and without its values. Names that
// the schema does not declare are data, and are *.
func (c *compiled) explain(wrong *jsonschema.ValidationError) string {
	var faults []string
	var visit func(e *jsonschema.ValidationError)
	visit = func(e *jsonschema.ValidationError) {
		if len(e.Causes) == 0 {
			faults = append(faults, c.pointer(e.InstanceLocation)+" "+c.fault(e.ErrorKind))
			return
		}
		switch e.ErrorKind.(type) {
		case *kind.AnyOf, *kind.OneOf:
			of := ofOneType(e)
			if len(of) != 1 {
				faults = append(faults, c.pointer(e.InstanceLocation)+" fits none of the alternatives")
				return
			}
			e = &jsonschema.ValidationError{Causes: of}
		}
		for _, cause := range e.Causes {
			visit(cause)
		}
	}
	visit(wrong)
	slices.Sort(faults) // the library has no order
	faults = slices.Compact(faults)
	if more := len(faults) - maxFaults; more > 0 {
		faults = append(faults[:maxFaults], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(faults, "; ")
}

// ofOneType returns the faults of the alternatives that have the value's type.
func ofOneType(e *jsonschema.ValidationError) []*jsonschema.ValidationError {
	return slices.DeleteFunc(slices.Clone(e.Causes), func(cause *jsonschema.ValidationError) bool {
		for len(cause.Causes) == 1 && len(cause.InstanceLocation) == len(e.InstanceLocation) {
			cause = cause.Causes[0]
		}
		_, isType := cause.ErrorKind.(*kind.Type)
		return isType && len(cause.InstanceLocation) == len(e.InstanceLocation)
	})
}

// pointer returns a JSON Pointer, and "/" for the payload as a whole, so that it can be seen.
func (c *compiled) pointer(tokens []string) string {
	var p strings.Builder
	if more := len(tokens) - 2*maxNames; more > 0 {
		tokens = append(slices.Clone(tokens[:2*maxNames]), "…")
	}
	for _, token := range tokens {
		if _, err := strconv.Atoi(token); err != nil && token != "…" && c.names != nil && !c.names[token] {
			token = "*"
		}
		p.WriteByte('/')
		p.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
	}
	if p.Len() == 0 {
		return "/"
	}
	return p.String()
}

func (c *compiled) fault(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return fmt.Sprintf("is %s, want %s", k.Got, strings.Join(k.Want, " or "))
	case *kind.Required:
		return "lacks " + strings.Join(k.Missing, ", ")
	case *kind.Format:
		return "is not of the format " + k.Want
	case *kind.FalseSchema:
		return "is not allowed"
	case *kind.AdditionalProperties:
		return "has unknown fields: " + nameFields(k.Properties)
	case *kind.RefCycle:
		return "cannot be judged: its schema refers to itself"
	}
	text := "breaks " + strings.Join(k.KeywordPath(), "/")
	if want := reflect.Indirect(reflect.ValueOf(k)).FieldByName("Want"); want.IsValid() {
		if number, ok := want.Interface().(*big.Rat); ok {
			return text + " " + number.RatString()
		}
		text += fmt.Sprintf(" %v", want.Interface())
	}
	return text
}

// nameFields lists names that the schema does not declare. Those that look like data are *.
func nameFields(names []string) string {
	shown := slices.Sorted(slices.Values(names))
	for i, name := range shown {
		if len(name) > maxShown || !named.MatchString(name) || id.MatchString(name) {
			shown[i] = "*"
		}
	}
	slices.Sort(shown)
	shown = slices.Compact(shown)
	if more := len(names) - maxNames; len(shown) > maxNames {
		shown = append(shown[:maxNames], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(shown, ", ")
}

// declared collects the names of all properties in a schema.
func declared(schema any, names map[string]bool) {
	switch s := schema.(type) {
	case map[string]any:
		for name := range objectOf(s["properties"]) {
			names[name] = true
		}
		for _, part := range s {
			declared(part, names)
		}
	case []any:
		for _, part := range s {
			declared(part, names)
		}
	}
}

// excess returns what makes a value too expensive to judge; "" if nothing does.
func excess(value any, depth int) string {
	if depth > maxNesting {
		return fmt.Sprintf("it is nested more than %d times", maxNesting)
	}
	switch v := value.(type) {
	case json.Number:
		digits, exponent, _ := strings.Cut(strings.ToLower(v.String()), "e")
		n, err := strconv.Atoi(exponent)
		if len(digits) > maxDigits || exponent != "" && (err != nil || n > maxExponent || n < -maxExponent) {
			return "it has a number that is too long or too large"
		}
	case []any:
		for _, item := range v {
			if fault := excess(item, depth+1); fault != "" {
				return fault
			}
		}
	case map[string]any:
		for _, member := range v {
			if fault := excess(member, depth+1); fault != "" {
				return fault
			}
		}
	}
	return ""
}
