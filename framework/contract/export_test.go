package contract

import (
	"fmt"
	"reflect"
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
