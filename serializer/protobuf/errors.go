package protobuf

import "errors"

// Errors of Marshal, Unmarshal and CheckType.
var (
	// ErrNoMessage means that the Go type is not generated from a .proto file, or that the
	// message is passed by value or is a nil pointer.
	ErrNoMessage = errors.New("not a proto.Message")
)
