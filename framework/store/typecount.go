package store

import "time"

// TypeCount counts one version of a type.
type TypeCount struct {
	Type    string
	Version int
	// Rows is the number of rows in the log, and Parked that of parked deliveries of all sinks.
	Rows, Parked int64
	// OccurredOn is when the last of the rows occurred; zero if there is none.
	OccurredOn time.Time
}
