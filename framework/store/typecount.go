package store

import "time"

// TypeCount is how much of a type there is.
type TypeCount struct {
	Type string
	// Version is the highest.
	Version int
	Count   int64
	// OccurredOn is the last one's.
	OccurredOn time.Time
}
