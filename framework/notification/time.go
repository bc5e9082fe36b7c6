package notification

import (
	"fmt"
	"time"
)

// The times of a notification are in the years 1 to 9999 in UTC. Go, JSON, SQL and receivers in
// other languages agree on these years and on no others. The first millisecond is left out, since
// it stands for a time that is not set.
var (
	MinTime = time.Date(1, time.January, 1, 0, 0, 0, 1e6, time.UTC)
	MaxTime = time.Date(9999, time.December, 31, 23, 59, 59, 999999000, time.UTC)
)

// ClampTime returns the time of the years 1 to 9999 that is nearest to t, in UTC with
// microseconds. It is for times that were written by others.
func ClampTime(t time.Time) time.Time {
	t = t.UTC().Truncate(time.Microsecond)
	switch {
	case t.Before(MinTime):
		return MinTime
	case t.After(MaxTime):
		return MaxTime
	}
	return t
}

// validTime refuses a time outside of the years 1 to 9999. The zero time passes.
func validTime(field string, t time.Time) error {
	if t.IsZero() || t.Truncate(time.Microsecond).Equal(ClampTime(t)) {
		return nil
	}
	return fmt.Errorf("%w: %s %s is outside the years 1 to 9999 in UTC", ErrInvalid, field, t)
}
