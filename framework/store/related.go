package store

import "time"

// RelatedQuery asks for the notifications of one correlation. No index has the correlation id,
// so a part of the log is examined: from an offset, from a time, or the last rows.
type RelatedQuery struct {
	// ID is the correlation id. The notification with this id is included.
	ID string
	// From is the first offset to examine; 0: Since decides.
	From int64
	// Since is when the first of them was published; zero: unknown, so the end of the log is
	// examined.
	Since time.Time
	// Offsets is how many offsets to examine, and Limit how many notifications to return at
	// most, fewer if their payloads add up to some megabytes; each at least 1.
	Offsets int64
	Limit   int
}

// Related is the result of a RelatedQuery, with all parked deliveries of the correlation.
type Related struct {
	// Traces are in log order, one for each id. Oldest is not set, nor is Before in their lanes.
	Traces []Trace
	// First and Last are the first and last row examined; nil if there were none.
	First, Last *Row
	// Omitted is how many parked deliveries were left out because of the limits.
	Omitted int
	// Next is the offset from which to continue; 0: the end of the log was reached.
	Next int64
	// Oldest is the first row of the log, or nil.
	Oldest *Row
}
