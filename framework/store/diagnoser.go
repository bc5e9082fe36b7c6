package store

import "context"

// Diagnoser explains errors of an INSERT into the log in the caller's transaction.
type Diagnoser interface {
	// Diagnose returns err, or an error that wraps it and explains it, such as ErrOtherDatabase.
	// It may query the transaction, if that is still usable.
	Diagnose(ctx context.Context, tx Execer, err error) error
}
