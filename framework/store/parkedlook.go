package store

import "time"

// ParkedLookLimit is how many parked deliveries of one sink a ParkedLook is made of at
// most, and OverdueLimit where it stops counting those that are overdue.
const (
	ParkedLookLimit = 50_000
	OverdueLimit    = 1_000
)

// ParkedLook is what a bounded look at the parked deliveries of one sink shows: at the last
// ones in log order. It takes no longer with a million of them.
type ParkedLook struct {
	Sink string
	// Looked is how many there were, up to ParkedLookLimit; the next three are of these.
	Looked int
	// Dead is how many are dead, DeadKeys over how many keys, and Settling how many wait
	// for a hook that has failed; HookError is one of those failures.
	Dead, DeadKeys, Settling int
	HookError                string
	// Overdue is how many of all are due for longer than a minute, up to OverdueLimit, and
	// LongestDue for how long the first of them.
	Overdue    int
	LongestDue time.Duration
}
