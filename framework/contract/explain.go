package contract

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// maxFaults is how many faults of a payload an error names.
const maxFaults = 5

// explain names what is wrong with a payload, by JSON Pointers (RFC 6901) and without its values.
func explain(wrong *jsonschema.ValidationError) string {
	var faults []string
	var visit func(e *jsonschema.ValidationError)
	visit = func(e *jsonschema.ValidationError) {
		if len(e.Causes) == 0 {
			faults = append(faults, pointer(e.InstanceLocation)+" "+fault(e.ErrorKind))
			return
		}
		switch e.ErrorKind.(type) {
		case *kind.AnyOf, *kind.OneOf:
			of := ofOneType(e)
			if len(of) != 1 {
				faults = append(faults, pointer(e.InstanceLocation)+" fits none of the alternatives")
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
func pointer(tokens []string) string {
	var p strings.Builder
	for _, token := range tokens {
		p.WriteByte('/')
		p.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
	}
	if p.Len() == 0 {
		return "/"
	}
	return p.String()
}

func fault(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return fmt.Sprintf("is %s, want %s", k.Got, strings.Join(k.Want, " or "))
	case *kind.Required:
		return "lacks " + strings.Join(k.Missing, ", ")
	case *kind.Format:
		return "is not a " + k.Want
	case *kind.FalseSchema:
		return "is not allowed"
	case *kind.AdditionalProperties:
		return "has the unknown " + strings.Join(k.Properties, ", ")
	}
	text := "breaks " + strings.Join(k.KeywordPath(), "/")
	if want := reflect.Indirect(reflect.ValueOf(k)).FieldByName("Want"); want.IsValid() {
		text += fmt.Sprintf(" %v", want.Interface())
	}
	return text
}
