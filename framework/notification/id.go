package notification

import (
	"time"

	"github.com/google/uuid"
)

// NewID returns a new UUIDv7 (RFC 9562). Such ids sort by their time of creation, so an
// index over them grows at its end.
func NewID() string {
	return uuid.Must(uuid.NewV7()).String()
}

// IDTime returns when a UUIDv7 was made, to the millisecond; the zero time for any other id.
func IDTime(id string) time.Time {
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 {
		return time.Time{}
	}
	return time.Unix(u.Time().UnixTime()).UTC()
}
