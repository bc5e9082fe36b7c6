package contract

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// DescribeType makes a contract of a Go type that no registry has.
func DescribeType(t reflect.Type) (*Contract, error) {
	document, err := describe(t, newSources())
	if err != nil {
		return nil, err
	}
	c, err := parse(About{Type: "it", Version: 1}, document)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", document, err)
	}
	return c, nil
}

// Recognizes reports whether a payload is accepted without the library, and whether the library accepts it.
func Recognizes(c *Contract, payload []byte) (quickly, accepted bool) {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
	return c.schema.quick.recognizes(payload), err == nil && c.schema.schema.Validate(value) == nil
}
