package registry

import (
	"errors"
	"fmt"
)

// Errors of Register. An invalid name, or a version outside
// 1..notification.MaxVersion, wraps notification.ErrInvalid instead. Register
// returns all mistakes of a type together.
var (
	// ErrDuplicateName: the name or an alias is already registered.
	ErrDuplicateName = errors.New("name is registered twice")
	// ErrDuplicateType: the Go type is already registered.
	ErrDuplicateType = errors.New("go type is registered twice")
	// ErrGoType: no value of the Go type can be a notification.
	ErrGoType = errors.New("go type cannot be a notification")
	// ErrOption: an option does not fit the type that it was given for.
	ErrOption = errors.New("option does not fit the type")
	// ErrUpcaster: the upcasters do not lead from every older version to the
	// newest.
	ErrUpcaster = errors.New("upcasters do not fit the versions")
)

// Errors of Encode, Name and NameOf.
var (
	// ErrNil: nil, or a nil pointer, was published.
	ErrNil = errors.New("notification is nil")
	// ErrUnregistered: the Go type has no name.
	ErrUnregistered = errors.New("go type is not registered")
	// ErrEncode: the serializer refused the value. Its error is wrapped too.
	ErrEncode = errors.New("notification does not serialize")
)

// Errors of Decode. A retry by the same program does not help; a newer program may
// fix ErrUnknownType and ErrNewerVersion.
var (
	// ErrUnknownType: no type has this name or alias.
	ErrUnknownType = errors.New("unknown notification type")
	// ErrVersion: the payload's version is newer than the registered one, or
	// older than the oldest that is still read.
	ErrVersion = errors.New("version cannot be read")
	// ErrNewerVersion is the ErrVersion of a version above the registered one.
	ErrNewerVersion = fmt.Errorf("newer %w", ErrVersion)
	// ErrContentType: the payload was written by another serializer.
	ErrContentType = errors.New("payload has another content type")
	// ErrDecode: the serializer or an upcaster refused the payload. Its error is
	// wrapped too.
	ErrDecode = errors.New("payload does not decode")
	// ErrOtherType: the generic Decode was asked for another Go type than the
	// one that is registered.
	ErrOtherType = errors.New("notification has another go type")
)
