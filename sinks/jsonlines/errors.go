package jsonlines

import "errors"

// Errors of deliveries.
var (
	// ErrLine means that a notification cannot be written as a line. It is invalid.
	ErrLine = errors.New("notification cannot be a line")
	// ErrBehind means that an earlier delivery of the same key in the batch failed. It is
	// transient, and no attempt is counted.
	ErrBehind = errors.New("not written, because an earlier one of its key failed")
	// ErrClosed means that the sink is closed. It is unavailable.
	ErrClosed = errors.New("jsonlines sink is closed")
)

// errReplaced means that another program has moved, removed, replaced or truncated the file.
var errReplaced = errors.New("another program has moved, removed or truncated it")
