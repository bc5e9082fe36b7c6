package notification

import (
	"time"

	"github.com/google/uuid"
)

// NewID returns a new UUIDv7 (RFC 9562), whose order is that of its creation:
// an index over ids grows at its end.
func NewID() string {
	return uuid.Must(uuid.NewV7()).String()
}

// IDTime is when an id was made, to the millisecond, as a UUIDv7 says; the zero time for
// every other id.
func IDTime(id string) time.Time {
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 {
		return time.Time{}
	}
	return time.Unix(u.Time().UnixTime()).UTC()
}
