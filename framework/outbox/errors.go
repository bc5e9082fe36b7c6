package outbox

import "errors"

// Errors of a Publisher. What is wrong with a type or a value comes from the
// packages registry and notification.
var (
	// ErrNotTransaction: what was passed as tx is none.
	ErrNotTransaction = errors.New("not a transaction")
	// ErrTooLarge: a payload exceeds the limit.
	ErrTooLarge = errors.New("payload is too large")
	// ErrBinaryPayload: a payload is no JSON and the column takes nothing else.
	ErrBinaryPayload = errors.New("payload is not JSON")
	// ErrUnique: what Unique was given makes no sense.
	ErrUnique = errors.New("invalid uniqueness")
	// ErrCancel: what is to be cancelled is not named.
	ErrCancel = errors.New("nothing to cancel")
	// ErrLog: the log is of a kind that cannot do it.
	ErrLog = errors.New("not possible with this log")
)

var errInsertOnly = errors.New("outbox: a publisher only inserts")
