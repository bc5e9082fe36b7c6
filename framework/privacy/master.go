package privacy

import (
	"context"
	"net/url"
	"strings"
)

// Master wraps keys of an outbox, so that its database, and copies of it, are worth nothing without the
// master key. It is called once for each root key when a [Keyring] is opened, and at a rotation, never for
// a notification. It must be safe for concurrent use.
type Master interface {
	// Wrap encrypts a key of 32 bytes, and authenticates context with it, which is no secret. name names the master
	// key and its version, for people and for Unwrap; it is no secret. It fails with ErrMaster if the key is missing
	// or cannot be used, and with other errors if it cannot be asked now.
	Wrap(ctx context.Context, key, context []byte) (wrapped []byte, name string, err error)
	// Unwrap is the inverse of Wrap, also for what an older version of the master key has wrapped. name is
	// that of Wrap. It fails with ErrMaster if the key is missing, disabled, destroyed or another one, or if
	// wrapped or context have changed, and with other errors if it cannot be asked now, or may not be used.
	Unwrap(ctx context.Context, wrapped, context []byte, name string) (key []byte, err error)
}

// OpenMaster returns the master key at an address of [ParseAddress], such as
// awskms://arn:aws:kms:eu-central-1:111122223333:key/… It connects to nothing; its errors are about the
// address.
type OpenMaster func(address *url.URL) (Master, error)

// ParseAddress returns the address of a master key. Unlike [url.Parse], which takes the colons of an ARN for that of a
// port, it accepts an ARN after ://, and has it in the path.
func ParseAddress(address string) (*url.URL, error) {
	return url.Parse(strings.Replace(address, "://arn:", ":///arn:", 1))
}
