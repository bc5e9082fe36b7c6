package store

import "context"

// Slot takes a place among a number of connections that several handles have in common. It waits for one, and
// release, which is called once, gives it back. nil bounds nothing.
type Slot func(ctx context.Context) (release func(), err error)

// Take takes a place.
func (s Slot) Take(ctx context.Context) (release func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	return s(ctx)
}
