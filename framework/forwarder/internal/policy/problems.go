package policy

import (
	"errors"
	"fmt"
)

// ErrConfig is the class of all that is wrong with a configuration.
var ErrConfig = errors.New("invalid forwarder configuration")

// Problems gathers what is wrong with a configuration, so that it is reported all at
// once. The zero value is empty.
type Problems struct{ found []error }

// Setting is one of this package's that can be checked.
type Setting interface {
	// validate reports what makes no sense in a setting that has its defaults. at is
	// where it stands in the configuration, such as "sinks.mail.retry".
	validate(p *Problems, at string)
}

// Require notes a problem, as fmt.Errorf formats it, unless ok.
func (p *Problems) Require(ok bool, format string, args ...any) {
	if !ok {
		p.Add(fmt.Errorf(format, args...))
	}
}

// Add notes an error as a problem; each part of one that errors.Join made is one.
func (p *Problems) Add(err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok && errors.Join(joined.Unwrap()...).Error() == err.Error() {
		for _, part := range joined.Unwrap() {
			p.found = append(p.found, fmt.Errorf("%w: %w", ErrConfig, part))
		}
		return
	}
	p.found = append(p.found, fmt.Errorf("%w: %w", ErrConfig, err))
}

// Check notes what is wrong with a setting that has its defaults. at is where it
// stands in the configuration, such as "sinks.mail.retry".
func (p *Problems) Check(at string, s Setting) { s.validate(p, at) }

// Err joins the problems, each an ErrConfig; nil if there is none.
func (p *Problems) Err() error { return errors.Join(p.found...) }
