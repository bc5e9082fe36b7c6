package route

import (
	"fmt"

	"github.com/waybill-go/waybill/registry"
)

// ErrNewerVersion means that an expression reads a payload whose version is newer than the registered
// one. A newer program can read it.
var ErrNewerVersion = registry.ErrNewerVersion

// payload decodes the payload, in the newest version of its type if that is known. So an expression is
// written for one version. It fails with ErrNewerVersion if the payload's version is newer.
func (f *facts) payload() (any, error) {
	e := f.envelope
	if f.isKnown() {
		newest, err := f.registry.Newest(e)
		if err != nil {
			return nil, err
		}
		e, f.version = newest, newest.Version
	}
	value, err := decode(e.Payload)
	if err != nil {
		return nil, fmt.Errorf("the payload is not JSON, which expressions need: %w", err)
	}
	return value, nil
}

// isKnown reports whether the type is registered.
func (f *facts) isKnown() bool {
	if f.registry == nil {
		return false
	}
	_, known := f.registry.Lookup(f.envelope.Type)
	return known
}
