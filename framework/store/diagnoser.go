package store

import "context"

// Diagnoser explains errors of an INSERT into the log in the caller's transaction.
type Diagnoser interface {
	// Diagnose returns err, or an error that wraps it and says what is wrong:
	// ErrOtherDatabase. It may ask the transaction, if that is still usable.
	Diagnose(ctx context.Context, tx Execer, err error) error
}
