// Package pace computes pauses between two tries of the same thing: a rest in proportion to
// the load of the database, and growing pauses while something fails, with few log lines.
package pace

import "time"

// Rest is the pause after a statement before the next one of its kind: Times as long as it took,
// at most Most. An idle server answers at once and may be asked again soon. A busy server takes
// longer to answer, and one statement then serves all requests that came meanwhile.
type Rest struct {
	Times int
	Most  time.Duration
}

// After returns the rest after a statement that took the given time.
func (r Rest) After(took time.Duration) time.Duration {
	return min(time.Duration(r.Times)*took, r.Most)
}

// Share is the pause after a statement that serves several things at once: Each for each of them, at
// most Most. What comes alone is served nearly at once. If more than one comes in Each, the pauses grow
// to Most, and a statement serves all that came meanwhile.
type Share struct {
	Each, Most time.Duration
}

// After returns the pause after a statement that served n.
func (s Share) After(n int64) time.Duration {
	return min(time.Duration(min(n, int64(s.Most/s.Each)+1))*s.Each, s.Most)
}
