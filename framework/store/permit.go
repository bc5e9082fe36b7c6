package store

import "context"

// Permit bounds the connections of several handles together. It waits until one of them is free, and
// calls connect. If that succeeds, release is called once, when the connection is closed. A nil
// Permit sets no bound.
type Permit func(ctx context.Context, connect func() error) (release func(), err error)

// Connect connects with a permit.
func (p Permit) Connect(ctx context.Context, connect func() error) (release func(), err error) {
	if p == nil {
		return func() {}, connect()
	}
	return p(ctx, connect)
}
