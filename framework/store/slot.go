package store

import "context"

// Slot takes one of a number of connections that several handles share. It waits until one is
// free. release gives it back and is called once. A nil Slot sets no bound.
type Slot func(ctx context.Context) (release func(), err error)

// Take takes a connection.
func (s Slot) Take(ctx context.Context) (release func(), err error) {
	if s == nil {
		return func() {}, nil
	}
	return s(ctx)
}
