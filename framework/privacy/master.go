package privacy

import (
	"context"
	"net/url"
)

// Master wraps keys of an outbox, so that its database, and copies of it, are worth nothing without the
// master key. It is called once for each root key when a [Keyring] is opened, and at a rotation, never for
// a notification. It must be safe for concurrent use.
type Master interface {
	// Wrap encrypts a key of 32 bytes, and authenticates context with it. name names the master key and its
	// version for people; it is no secret.
	Wrap(ctx context.Context, key, context []byte) (wrapped []byte, name string, err error)
	// Unwrap is the inverse of Wrap, also for what an older version of the master key has wrapped. name is
	// that of Wrap. It fails with ErrMaster if the key is missing, destroyed or another one, and with other
	// errors if it cannot be asked now.
	Unwrap(ctx context.Context, wrapped, context []byte, name string) (key []byte, err error)
}

// OpenMaster returns the master key at an address, such as
// awskms://arn:aws:kms:eu-central-1:111122223333:key/… It connects to nothing; its errors are about the
// address.
type OpenMaster func(address *url.URL) (Master, error)
