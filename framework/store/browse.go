package store

import (
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// LogQuery asks for rows of the log, newest first. Each of the first five fields that is set
// narrows the selection. No index supports them, so a query examines a part of the log.
type LogQuery struct {
	// ID is the notification's id. If it contains a time, as a UUIDv7 does, only rows written
	// around that time are examined.
	ID string
	// Types selects by type; the zero value means all types.
	Types notification.TypeFilter
	Key   string
	// Since and Until select rows that occurred at Since or later, and before Until. Until may
	// miss rows written more than a minute after they occurred, as by an import.
	Since, Until time.Time
	// Before is the offset before which to look; 0: from the end of the log.
	Before int64
	// Offsets is how many offsets to examine, and Limit how many rows to return at most; each
	// at least 1.
	Offsets int64
	Limit   int
}

// LogPage is the result of a LogQuery.
type LogPage struct {
	// Rows are the rows found, newest first, without payloads, which are not read. A row that
	// is not committed yet is missing, even if its offset is lower than those of others.
	Rows []notification.Envelope
	// Last is the last row examined, the oldest one; nil if there was none.
	Last *Row
	// Next is the Before to continue with; 0: there is nothing more.
	Next int64
}

// ParkedQuery asks for parked deliveries, by sink and in log order. Few filters have an index,
// so a query examines a part of the table.
type ParkedQuery struct {
	Filter ParkedFilter
	// After is the place after which to look; the zero value is before all.
	After ParkedPlace
	// Look is roughly how many parked deliveries to examine, and Limit how many to return at
	// most; each at least 1. With an ID, which has an index, Look is ignored.
	Look, Limit int
}

// ParkedPage is the result of a ParkedQuery.
type ParkedPage struct {
	// Deliveries come without payloads, which are not read.
	Deliveries []ParkedDelivery
	// Next is the After to continue with; the zero value: there is nothing more.
	Next ParkedPlace
}
