//go:build !failpoint

package failpoint

// On reports whether this program can fail.
const On = false

// Do makes a step.
func (Step) Do(step func() error) error { return step() }
