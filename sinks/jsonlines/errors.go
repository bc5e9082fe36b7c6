package jsonlines

import "errors"

// Errors of deliveries.
var (
	// ErrLine: a notification cannot be a line. It is permanent.
	ErrLine = errors.New("notification cannot be a line")
	// ErrBehind: an earlier delivery of the same key in the batch failed.
	ErrBehind = errors.New("not written: one before it of its key failed")
	// ErrClosed: the sink was closed.
	ErrClosed = errors.New("jsonlines sink is closed")
)
