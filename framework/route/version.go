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
	if _, known := f.known(); known {
		newest, err := f.registry.Newest(e)
		if err != nil {
			return nil, err
		}
		e = newest
	}
	value, err := decode(e.Payload)
	if err != nil {
		return nil, fmt.Errorf("the payload is not JSON, which expressions need: %w", err)
	}
	return value, nil
}

// pickedVersion returns the version of a picked payload. That is the newest one, for which the
// expressions are written, so that no reader takes it for an older one and converts it.
func (f *facts) pickedVersion() int {
	info, _ := f.known()
	return max(info.Version, f.envelope.Version)
}

// known returns the type, if it is registered.
func (f *facts) known() (registry.Info, bool) {
	if f.registry == nil {
		return registry.Info{}, false
	}
	return f.registry.Lookup(f.envelope.Type)
}
