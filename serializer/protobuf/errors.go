package protobuf

import "errors"

// Errors of Marshal, Unmarshal and CheckType.
var (
	// ErrNoMessage: the Go type was not generated from a .proto file, or the
	// message was given by value or as a nil pointer.
	ErrNoMessage = errors.New("not a proto.Message")
)
