package sinks

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Class says what a failed delivery means for the engine.
type Class int

const (
	// ClassTransient: this delivery failed and may succeed later. It is parked
	// and retried with backoff; an attempt is spent. Errors without a class are
	// transient.
	ClassTransient Class = iota
	// ClassThrottled: the destination asks to wait until a time. The whole sink
	// waits; nothing is parked, no attempt is spent.
	ClassThrottled
	// ClassUnavailable: the destination cannot be reached, or refuses whatever is
	// sent: the credentials, the address, the configuration. The whole sink waits
	// with growing intervals; nothing is parked, no attempt is spent. A delivery
	// that meets this again after others got through spends an attempt.
	ClassUnavailable
	// ClassPermanent: this delivery is refused for what it is and can never
	// succeed. It is dead at once. Where deliveries of ten keys in a row are, and
	// none gets through between, the whole sink waits.
	ClassPermanent
	// ClassUnknown: this process does not know the delivery's type or version, and
	// another deploy may. It is parked and retried for as long as a rolling deploy
	// may take, and is dead then; no attempt is spent.
	ClassUnknown
	// ClassCancelled: the engine ended the attempt. It counts as none.
	ClassCancelled
)

// String returns the class's word as it stands in logs and metrics.
func (c Class) String() string {
	switch c {
	case ClassTransient:
		return "transient"
	case ClassThrottled:
		return "throttled"
	case ClassUnavailable:
		return "unavailable"
	case ClassPermanent:
		return "permanent"
	case ClassUnknown:
		return "unknown"
	case ClassCancelled:
		return "cancelled"
	}
	return fmt.Sprintf("Class(%d)", int(c))
}

// Error is an error with a class. Sinks make it with [Transient], [Throttled],
// [Unavailable], [Permanent] and [Unknown]; the engine reads it with [Classify].
type Error struct {
	Class Class
	// Until is when a throttled destination takes deliveries again.
	Until time.Time
	// Err is what went wrong, in the destination's words where it has some.
	Err error
}

func (e *Error) Error() string {
	if e.Class == ClassThrottled {
		return fmt.Sprintf("throttled until %s: %v", e.Until.UTC().Format(time.RFC3339), e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Class, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Transient marks err as worth a retry of this delivery.
func Transient(err error) error { return &Error{Class: ClassTransient, Err: err} }

// Throttled marks err as the destination's wish that nothing comes before until.
func Throttled(until time.Time, err error) error {
	return &Error{Class: ClassThrottled, Until: until, Err: err}
}

// Unavailable marks err as trouble in reaching the destination at all, or as a refusal
// of whatever is sent to it. See [ClassUnavailable].
func Unavailable(err error) error { return &Error{Class: ClassUnavailable, Err: err} }

// Permanent marks err as final for this delivery.
func Permanent(err error) error { return &Error{Class: ClassPermanent, Err: err} }

// Unknown marks err as the lack of this process, which does not know the type or
// the version of the delivery: an old process of a rolling deploy reads what a new
// one publishes. See [ClassUnknown].
func Unknown(err error) error { return &Error{Class: ClassUnknown, Err: err} }

// Classify returns the class of err and, for a throttled one, the time to wait
// for. The outermost class counts; context.Canceled is cancelled; everything
// else, a passed deadline too, is transient.
func Classify(err error) (Class, time.Time) {
	var e *Error
	if errors.As(err, &e) {
		return e.Class, e.Until
	}
	if errors.Is(err, context.Canceled) {
		return ClassCancelled, time.Time{}
	}
	return ClassTransient, time.Time{}
}
