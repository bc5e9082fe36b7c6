package sinks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Class is the class of a failure. It decides what the engine does with the delivery and the
// sink.
type Class int

const (
	// ClassTransient means that this delivery failed and may succeed later. It uses up an
	// attempt, is parked and retried with backoff. Errors without a class are transient.
	ClassTransient Class = iota
	// ClassThrottled means that the destination asks to wait until a time. The whole sink
	// waits; nothing is parked, and no attempt is used up. If the sink is an [Addresser], only the
	// destination's deliveries wait, and they are parked.
	ClassThrottled
	// ClassUnavailable means that the destination cannot be reached, or refuses everything
	// because of the sink's credentials, address or configuration. The whole sink waits, with
	// growing pauses; nothing is parked, and no attempt is used up. If the same delivery fails
	// this way again after others have succeeded, it uses up an attempt. If the sink is an
	// [Addresser], only the destination's deliveries wait, and they are parked.
	ClassUnavailable
	// ClassPermanent means that the destination refuses this notification for what it is. The
	// delivery is dead at once. After ten in a row without a success, whatever their keys, the
	// whole sink waits.
	ClassPermanent
	// ClassInvalid means that nothing was sent, since this sink can never send this notification:
	// a template fails, an address is none, it is too large. The delivery is dead at once. That
	// says nothing about the destination, so it neither opens a breaker nor closes one.
	ClassInvalid
	// ClassUnknown means that this process does not know the delivery's type or version, but
	// another deployment may. The delivery is parked and retried without using up attempts,
	// for as long as a rolling deploy may take (72 h), and is then dead.
	ClassUnknown
	// ClassCancelled means that the engine ended the attempt. It does not count.
	ClassCancelled
)

// String returns the class in one word, as in logs and metrics.
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
	case ClassInvalid:
		return "invalid"
	case ClassUnknown:
		return "unknown"
	case ClassCancelled:
		return "cancelled"
	}
	return fmt.Sprintf("Class(%d)", int(c))
}

// Error is an error with a class. Sinks make it with [Transient], [Throttled],
// [Unavailable], [Permanent], [Invalid] and [Unknown]; the engine reads it with [Classify].
type Error struct {
	Class Class
	// Until is when a throttled destination accepts deliveries again.
	Until time.Time
	// Apart means that only deliveries such as this one are affected; see [Apart].
	Apart bool
	// Err is the cause, with the destination's own message if there is one.
	Err error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s%v", e.prefix(), e.Err)
}

// prefix returns what the text of the error begins with.
func (e *Error) prefix() string {
	if e.Class == ClassThrottled {
		return "throttled until " + e.Until.UTC().Format(time.RFC3339) + ": "
	}
	return e.Class.String() + ": "
}

// Text returns the text of an error without the class with which that begins, for where the class stands beside it.
func Text(err error) string {
	var e *Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	return strings.TrimPrefix(err.Error(), e.prefix())
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Transient classifies err as a failure of this delivery that a retry may fix. See
// [ClassTransient].
func Transient(err error) error { return &Error{Class: ClassTransient, Err: err} }

// Throttled classifies err as the destination's request to wait until a time. See
// [ClassThrottled].
func Throttled(until time.Time, err error) error {
	return &Error{Class: ClassThrottled, Until: until, Err: err}
}

// Unavailable classifies err as a failure of the whole destination: it cannot be reached, or
// refuses the sink itself. See [ClassUnavailable].
func Unavailable(err error) error { return &Error{Class: ClassUnavailable, Err: err} }

// Apart classifies err as the failure of something that only some deliveries need besides the destination, such as a
// store of large bodies. It is unavailable, but says nothing about the destination, so that no breaker opens: the
// delivery is parked and retried without using up attempts, until it does not fail in this way any more.
func Apart(err error) error { return &Error{Class: ClassUnavailable, Apart: true, Err: err} }

// IsApart reports whether err is one of [Apart].
func IsApart(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Apart
}

// Permanent classifies err as the destination's final refusal of this delivery. See
// [ClassPermanent].
func Permanent(err error) error { return &Error{Class: ClassPermanent, Err: err} }

// Invalid classifies err as the reason why this sink can never send this notification; nothing
// was sent. See [ClassInvalid].
func Invalid(err error) error { return &Error{Class: ClassInvalid, Err: err} }

// Unknown classifies err as a type or version that this process does not know, as when an old
// process of a rolling deploy reads what a new one published. See [ClassUnknown].
func Unknown(err error) error { return &Error{Class: ClassUnknown, Err: err} }

// Classify returns the class of err, and if it is throttled, the time to wait for. The outermost
// [Error] counts. Without one, context.Canceled is cancelled, and everything else, including
// context.DeadlineExceeded, is transient.
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

// MaxAnswer is how many bytes of a destination's answer an error has at most.
const MaxAnswer = 4 << 10

// WithAnswer adds what the destination answered to an error that says what happened, such as its
// status. An answer may repeat the notification's private data or anything else, so logs, traces and
// status leave it out, and only the error of the parked delivery has it, up to the sink's
// answer_bytes. What a function or a template quotes of a notification is treated the same. It must be short, and without the sink's credentials. The text of the error is that
// of err, a colon and the answer.
func WithAnswer(err error, answer string) error {
	if answer == "" {
		return err
	}
	if before := AnswerOf(err); before != "" {
		answer = before + ": " + answer
	}
	return &answered{Brief(err), answer, err}
}

type answered struct {
	brief, answer string
	err           error
}

func (e *answered) Error() string {
	if e.answer == "" {
		return e.brief
	}
	return e.brief + ": " + e.answer
}
func (e *answered) Unwrap() error { return e.err }

// Brief returns the text of an error without the destination's answer.
func Brief(err error) string {
	text := err.Error()
	for _, a := range answersIn(err) {
		text = strings.Replace(text, a.Error(), a.brief, 1)
	}
	return text
}

// AnswerOf returns the destination's answer in an error; "" if there is none, and with semicolons if there are several.
func AnswerOf(err error) string {
	var all []string
	for _, a := range answersIn(err) {
		if a.answer != "" {
			all = append(all, a.answer)
		}
	}
	return strings.Join(all, "; ")
}

// answersIn returns the answers in an error; one that joins several errors can have several.
func answersIn(err error) (all []*answered) {
	switch e := err.(type) { //nolint:errorlint // it unwraps by itself
	case *answered:
		return []*answered{e}
	case interface{ Unwrap() error }:
		return answersIn(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			all = append(all, answersIn(one)...)
		}
	}
	return all
}

// CutAnswer returns nil for nil, and otherwise an error whose text has at most limit bytes of the destination's answer.
func CutAnswer(err error, limit int) error {
	if err == nil {
		return nil
	}
	answer := AnswerOf(err)
	if len(answer) <= limit {
		return err
	}
	return &answered{Brief(err), strings.ToValidUTF8(answer[:limit], ""), err}
}
