package privacy

import "errors"

var (
	// ErrMaster: a root key cannot be unwrapped, because its master key is missing, destroyed or another one.
	ErrMaster = errors.New("the master key of private values is missing")
	// ErrErased: the key of a private value was erased.
	ErrErased = errors.New("erased")
)
