//go:build !failpoint

package failpoint

// Do makes a step.
func (Step) Do(step func() error) error { return step() }
