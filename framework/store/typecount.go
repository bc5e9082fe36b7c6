package store

import "time"

// TypeCount is how much there is of a version of a type.
type TypeCount struct {
	Type    string
	Version int
	// Rows are those of the log, and Parked the deliveries that are parked for all sinks.
	Rows, Parked int64
	// OccurredOn is that of the last of the rows; zero where there is none.
	OccurredOn time.Time
}
