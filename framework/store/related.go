package store

import "time"

// RelatedQuery asks for the notifications of one correlation. No index has the
// correlation, so a part of the log is looked through: from an offset, or from about a time, or
// else the last rows.
type RelatedQuery struct {
	// ID is the correlation id. The notification that has it as its own id belongs to it too.
	ID string
	// From is the first offset to look at; 0: Since says where.
	From int64
	// Since is when the first of them was published; zero: not known, so the end of the log
	// is looked through.
	Since time.Time
	// Offsets is how many offsets are looked through, and Limit how many notifications are
	// returned at most, fewer where their payloads add up to some megabytes; at least 1.
	Offsets int64
	Limit   int
}

// Related is what a part of the log has of a correlation, and all that is parked of it.
type Related struct {
	// Traces are in the order of the log, one of each id. They lack Oldest, and their lanes
	// Before.
	Traces []Trace
	// First and Last are the rows between which the log was looked through; nil: there are
	// none.
	First, Last *Row
	// Omitted is how many parked deliveries were left out for lack of room.
	Omitted int
	// Next is the offset from which to look on; 0: that was the end of the log.
	Next int64
	// Oldest is the first row of the log; nil: there is none.
	Oldest *Row
}
