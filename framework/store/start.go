package store

import (
	"fmt"
	"time"
)

// Start says where in the log a sink without cursors begins. The zero value is the default
// rule: StartOldest if nothing was forwarded from the log yet, otherwise StartNow. A sink with
// cursors continues at them, whatever its Start.
//
// As text it is "oldest", "now", or an RFC 3339 time.
type Start string

const (
	// StartOldest begins at the oldest row that is still in the log.
	StartOldest Start = "oldest"
	// StartNow begins after all rows committed when the cursors are created. Rows of
	// transactions that are open at that time are delivered.
	StartNow Start = "now"
)

// StartAt begins at the first row, in log order, that occurred at t or later: all rows before
// it are skipped and none after it, whenever they occurred. Rows that are not committed when
// the cursors are created are delivered in any case.
func StartAt(t time.Time) Start { return Start(t.UTC().Format(time.RFC3339Nano)) }

// Time returns the time of a StartAt; false for any other Start.
func (s Start) Time() (time.Time, bool) {
	t, err := time.Parse(time.RFC3339, string(s))
	return t.UTC(), err == nil
}

// Validate returns ErrStart if the text is not a valid Start.
func (s Start) Validate() error {
	if _, isTime := s.Time(); isTime || s == "" || s == StartOldest || s == StartNow {
		return nil
	}
	return fmt.Errorf("%w: %q: use %s, %s, or a time such as 2026-03-01T00:00:00Z", ErrStart, string(s), StartOldest, StartNow)
}

// Created is the result of Cut.
type Created struct {
	// Lanes is how many cursors were created; 0 if the sink already had all of them.
	Lanes int
	// Grown reports that the sink had cursors, and that the source has more partitions now.
	Grown bool
	// Start is where the new cursors begin; the default rule is replaced by its result.
	Start Start
	// Passed is how many committed rows, of any type, were skipped, up to PendingLimit.
	Passed int
}
