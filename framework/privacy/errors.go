package privacy

import (
	"errors"
	"fmt"
)

var (
	// ErrMaster: a root key cannot be unwrapped, because its master key is missing, destroyed or another one.
	ErrMaster = errors.New("the master key of private values is missing")
	// ErrErased: the key of a private value was erased.
	ErrErased = errors.New("the person's data was erased")
	// ErrUnreadable: a private value was changed, or belongs to another notification.
	ErrUnreadable = errors.New("a private value cannot be decrypted")
	// ErrMissing: the key of a private value is not in the database.
	ErrMissing = errors.New("the database does not have the key of a private value")
	// ErrSubject: a notification with private values does not say whose they are.
	ErrSubject = errors.New("private values without a subject")
	// ErrConfig: the configuration is not valid.
	ErrConfig = errors.New("invalid configuration of private values")
)

// NoSubject returns ErrSubject for a notification of a type.
func NoSubject(typ string) error {
	return fmt.Errorf("%s: %w: return the id of the person whose data the private fields are", typ, ErrSubject)
}
