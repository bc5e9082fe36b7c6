package settings

import "github.com/waybill-go/waybill/sinks"

// Erased says what becomes of a delivery to a sink that gets private values, if their key was erased.
type Erased string

// What becomes of a delivery with erased values.
const (
	// ErasedDrop removes them from the payload. It is the default.
	ErasedDrop Erased = "drop"
	// ErasedDead makes the delivery dead.
	ErasedDead Erased = "dead"
)

func (e Erased) validate(p *Problems, at string) {
	p.Require(e == ErasedDrop || e == ErasedDead, "%s is %q: use %s or %s", at, e, ErasedDrop, ErasedDead)
}

// Private is a setting that can be checked; see [sinks.Private].
type Private sinks.Private

func (s Private) validate(p *Problems, at string) {
	switch sinks.Private(s) {
	case sinks.PrivateReveal, sinks.PrivateKeep, sinks.PrivateDrop, sinks.PrivateMask:
	default:
		p.Require(false, "%s is %q: use reveal, keep, drop or mask", at, s)
	}
}
