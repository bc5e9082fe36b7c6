package outbox

import (
	"errors"
	"fmt"
	"time"
)

// Errors of a Publisher. Errors about a type or a value come from the packages registry
// and notification.
var (
	// ErrNotTransaction: the value passed as tx is not a transaction.
	ErrNotTransaction = errors.New("not a transaction")
	// ErrTxOver: the transaction was already committed or rolled back.
	ErrTxOver = errors.New("the transaction is over")
	// ErrOption: an option is nil, or was passed in place of a notification.
	ErrOption = errors.New("misplaced option")
	// ErrTooLarge: a payload exceeds the limit.
	ErrTooLarge = errors.New("payload is too large")
	// ErrBinaryPayload: a payload is not JSON that the database accepts, and the payload column takes only JSON.
	ErrBinaryPayload = errors.New("payload is not JSON")
	// ErrPrivate: private values cannot be encrypted.
	ErrPrivate = errors.New("private values would not be encrypted")
	// ErrSource: the log is a store.Source, which cannot be published to.
	ErrSource = errors.New("nothing can be published to this log")
	// ErrMapping: New refuses a mapping of domain events, or a mapping gives several
	// notifications the same id.
	ErrMapping = errors.New("mapping of domain events")
	// ErrUnit: a unit of work cannot publish.
	ErrUnit = errors.New("unit of work")
	// ErrUnique: the key or the period of Unique is not valid.
	ErrUnique = errors.New("invalid uniqueness")
	// ErrDuplicate: a notification with the same uniqueness key was already published; the
	// error is a *DuplicateError.
	ErrDuplicate = errors.New("a notification with this uniqueness key was already published")
	// ErrCancel: the id, type or key to cancel by is missing or not valid.
	ErrCancel = errors.New("nothing to cancel")
	// ErrLog: this kind of log does not support the operation.
	ErrLog = errors.New("not supported by this log")
)

var (
	errNoDatabase = errors.New("outbox: db is nil: pass the database to begin a transaction in")
	errInsertOnly = errors.New("outbox: a publisher only inserts")
)

// DuplicateError reports which uniqueness key is taken. It wraps ErrDuplicate.
type DuplicateError struct {
	Type, Key string
	// Until is when the key is free again; the zero time if tx is a wrapper that cannot query.
	Until time.Time
}

func (e *DuplicateError) Error() string {
	until := ""
	if !e.Until.IsZero() {
		until = " until " + e.Until.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s: the uniqueness key %q is taken%s, and nothing of this call is published", e.Type, e.Key, until)
}

// Unwrap returns ErrDuplicate.
func (e *DuplicateError) Unwrap() error { return ErrDuplicate }
