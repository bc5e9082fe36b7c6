package outbox

import (
	"errors"
	"fmt"
	"time"
)

// Errors of a Publisher. What is wrong with a type or a value comes from the
// packages registry and notification.
var (
	// ErrNotTransaction: what was passed as tx is none.
	ErrNotTransaction = errors.New("not a transaction")
	// ErrTxOver: the transaction is committed or rolled back already.
	ErrTxOver = errors.New("the transaction is over")
	// ErrOption: an option is nil, or stands in the place of a notification.
	ErrOption = errors.New("misplaced option")
	// ErrTooLarge: a payload exceeds the limit.
	ErrTooLarge = errors.New("payload is too large")
	// ErrBinaryPayload: a payload is no JSON and the column takes nothing else.
	ErrBinaryPayload = errors.New("payload is not JSON")
	// ErrSource: the log is a store.Source, to which nothing can be published.
	ErrSource = errors.New("nothing can be published to this log")
	// ErrMapping: a mapping of domain events is refused by New, or gives several
	// notifications one id.
	ErrMapping = errors.New("mapping of domain events")
	// ErrUnit: a unit of work cannot publish.
	ErrUnit = errors.New("unit of work")
	// ErrUnique: what Unique was given makes no sense.
	ErrUnique = errors.New("invalid uniqueness")
	// ErrDuplicate: a notification with the same uniqueness key was published already; it
	// is a *DuplicateError.
	ErrDuplicate = errors.New("a notification with this uniqueness key was published already")
	// ErrCancel: what is to be cancelled is not named.
	ErrCancel = errors.New("nothing to cancel")
	// ErrLog: the log is of a kind that cannot do it.
	ErrLog = errors.New("not possible with this log")
)

var (
	errNoDatabase = errors.New("outbox: db is nil: pass the database to begin a transaction in")
	errInsertOnly = errors.New("outbox: a publisher only inserts")
)

// DuplicateError says which uniqueness key is taken. It wraps ErrDuplicate.
type DuplicateError struct {
	Type, Key string
	// Until is until when; the zero time where tx is a wrapper that cannot be asked.
	Until time.Time
}

func (e *DuplicateError) Error() string {
	until := ""
	if !e.Until.IsZero() {
		until = " until " + e.Until.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s: the uniqueness key %q is taken%s, and nothing of this call is published", e.Type, e.Key, until)
}

// Unwrap is ErrDuplicate.
func (e *DuplicateError) Unwrap() error { return ErrDuplicate }
