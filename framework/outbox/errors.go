package outbox

import "errors"

// Errors of Publish and New. What is wrong with a type or a value comes from the
// packages registry and notification.
var (
	// ErrNotTransaction: what was passed as tx is none.
	ErrNotTransaction = errors.New("not a transaction")
	// ErrTooLarge: a payload exceeds the limit.
	ErrTooLarge = errors.New("payload is too large")
	// ErrBinaryPayload: a payload is no JSON and the column takes nothing else.
	ErrBinaryPayload = errors.New("payload is not JSON")
	// ErrMapping: a mapping of domain events is refused by New, or gives several
	// notifications one id.
	ErrMapping = errors.New("mapping of domain events")
	// ErrUnit: a unit of work cannot publish.
	ErrUnit = errors.New("unit of work")
)

var errInsertOnly = errors.New("outbox: a publisher only inserts")
