package store

import (
	"fmt"
	"time"
)

// Start says where in the log a sink without cursors begins. The zero value is the
// default rule: StartOldest on a log from which nothing was forwarded yet, StartNow on
// any other. A sink that has cursors goes on at them, whatever its Start.
//
// As text it is "oldest", "now", or a time in the form of RFC 3339.
type Start string

const (
	// StartOldest is before the oldest row that is still in the log.
	StartOldest Start = "oldest"
	// StartNow is behind all that is committed when the cursors are made: what a
	// transaction writes that is still running then comes later.
	StartNow Start = "now"
)

// StartAt is before the first row, in log order, that occurred at t or later: those
// before it are passed over, and those behind it are not, whenever they occurred. What is
// not committed yet when the cursors are made comes in any case.
func StartAt(t time.Time) Start { return Start(t.UTC().Format(time.RFC3339Nano)) }

// Time is the time of a StartAt; false if it is none, as it is a rule or no start at all.
func (s Start) Time() (time.Time, bool) {
	t, err := time.Parse(time.RFC3339, string(s))
	return t.UTC(), err == nil
}

// Validate returns ErrStart for a text that is no start.
func (s Start) Validate() error {
	if _, isTime := s.Time(); isTime || s == "" || s == StartOldest || s == StartNow {
		return nil
	}
	return fmt.Errorf("%w: %q: use %s, %s, or a time such as 2026-03-01T00:00:00Z", ErrStart, string(s), StartOldest, StartNow)
}

// Created is what Cut has made.
type Created struct {
	// Lanes is how many cursors it made; 0 where the sink had some, and lacked none.
	Lanes int
	// Grown says that it had some, and that the log is a source that has more partitions now.
	Grown bool
	// Start is where they begin: never the default rule, but what followed from it.
	Start Start
	// Passed is how many committed rows, of any type, were passed over, up to
	// PendingLimit.
	Passed int
}
