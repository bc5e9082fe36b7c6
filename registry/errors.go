package registry

import (
	"errors"
	"fmt"
)

// Errors of Register. An invalid name, or a version outside
// 1..notification.MaxVersion, wraps notification.ErrInvalid instead. Register
// returns all mistakes of a type together.
var (
	// ErrDuplicateName means that the name or an alias is already registered.
	ErrDuplicateName = errors.New("name is registered twice")
	// ErrReservedName means that the name or an alias begins with notification.ReservedPrefix.
	ErrReservedName = errors.New("name is reserved")
	// ErrDuplicateType means that the Go type is already registered.
	ErrDuplicateType = errors.New("go type is registered twice")
	// ErrGoType means that values of the Go type cannot be notifications.
	ErrGoType = errors.New("go type cannot be a notification")
	// ErrOption means that an option does not fit the type.
	ErrOption = errors.New("option does not fit the type")
	// ErrUpcaster means that the upcasters do not convert every older version to the newest.
	ErrUpcaster = errors.New("upcasters do not fit the versions")
)

// Errors of Encode, Name and NameOf.
var (
	// ErrNil means that the notification is nil or a nil pointer.
	ErrNil = errors.New("notification is nil")
	// ErrUnregistered means that the Go type is not registered.
	ErrUnregistered = errors.New("go type is not registered")
	// ErrEncode means that the serializer refused the value. It comes with the serializer's
	// error.
	ErrEncode = errors.New("notification does not serialize")
)

// Errors of Decode. A retry by the same program does not help; a newer program may
// fix ErrUnknownType and ErrNewerVersion.
var (
	// ErrUnknownType means that no type has this name or alias.
	ErrUnknownType = errors.New("unknown notification type")
	// ErrVersion means that the payload's version is newer than the registered one, or older
	// than the oldest that can be read.
	ErrVersion = errors.New("version cannot be read")
	// ErrNewerVersion means that the payload's version is newer than the registered one. It
	// wraps ErrVersion.
	ErrNewerVersion = fmt.Errorf("newer %w", ErrVersion)
	// ErrContentType means that the type's serializer does not read the payload's content
	// type.
	ErrContentType = errors.New("payload has another content type")
	// ErrDecode means that the serializer or an upcaster refused the payload. It comes with
	// their error.
	ErrDecode = errors.New("payload does not decode")
	// ErrOtherType means that the function Decode was called for a Go type other than the
	// registered one.
	ErrOtherType = errors.New("notification has another go type")
)
