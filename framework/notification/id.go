package notification

import "github.com/google/uuid"

// NewID returns a new UUIDv7 (RFC 9562), whose order is that of its creation:
// an index over ids grows at its end.
func NewID() string {
	return uuid.Must(uuid.NewV7()).String()
}
