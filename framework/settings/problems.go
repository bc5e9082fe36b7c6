package settings

import (
	"errors"
	"fmt"
)

// ErrConfig: the configuration of a forwarder is not valid.
var ErrConfig = errors.New("invalid forwarder configuration")

// Problems collects the mistakes in a configuration, so that all are reported at once. The zero
// value is empty.
type Problems struct{ found []error }

// Setting is a setting of this package that can be checked.
type Setting interface {
	// validate reports mistakes in a setting with its defaults. at is its place in the
	// configuration, such as "sinks.mail.retry".
	validate(p *Problems, at string)
}

// Require adds a problem, formatted as by fmt.Errorf, unless ok.
func (p *Problems) Require(ok bool, format string, args ...any) {
	if !ok {
		p.Add(fmt.Errorf(format, args...))
	}
}

// Add adds an error as a problem; if errors.Join made it, each part is a problem.
func (p *Problems) Add(err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && errors.Join(joined.Unwrap()...).Error() == err.Error() {
		for _, part := range joined.Unwrap() {
			p.found = append(p.found, fmt.Errorf("%w: %w", ErrConfig, part))
		}
		return
	}
	p.found = append(p.found, fmt.Errorf("%w: %w", ErrConfig, err))
}

// Check adds the mistakes in a setting, which must have its defaults. at is its place in the
// configuration, such as "sinks.mail.retry".
func (p *Problems) Check(at string, s Setting) { s.validate(p, at) }

// Err joins the problems, each as ErrConfig; nil if there are none.
func (p *Problems) Err() error { return errors.Join(p.found...) }
