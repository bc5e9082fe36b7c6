// Package pace says how long to wait between two tries of the same thing: a rest in
// proportion to what the database has to give, and growing pauses while something
// fails, with a log that stays readable.
package pace

import "time"

// Rest is what follows a statement before the next one of its kind: so many times as
// long as it took, and no longer than Most. What an idle server answers at once may
// be asked again soon; where others keep the server busy its answers take longer, and
// one serves all that came meanwhile.
type Rest struct {
	Times int
	Most  time.Duration
}

// After is the rest after a statement that took so long.
func (r Rest) After(took time.Duration) time.Duration {
	return min(time.Duration(r.Times)*took, r.Most)
}
