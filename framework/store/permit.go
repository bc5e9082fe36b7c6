package store

import "context"

// Permit takes one of a number of connections that several handles share. It waits until one is
// free. release gives it back and is called once. A nil Permit sets no bound.
type Permit func(ctx context.Context) (release func(), err error)

// Take takes a connection.
func (p Permit) Take(ctx context.Context) (release func(), err error) {
	if p == nil {
		return func() {}, nil
	}
	return p(ctx)
}
