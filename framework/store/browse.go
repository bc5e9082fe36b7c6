package store

import (
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// LogQuery asks for rows of the log, the newest first. Each field that is set leaves out some;
// the zero value of the first five matches all. No index has what they ask for, so a part of
// the log is looked through.
type LogQuery struct {
	// ID is the notification's. One with a time in it, a UUIDv7, is looked for among what was
	// written around that time.
	ID string
	// Types selects nothing in its zero value, which therefore counts as all.
	Types notification.TypeFilter
	Key   string
	// Since and Until bound when a row occurred: from Since on and before Until. What was
	// written over a minute after it occurred, as by an import, may be missed with Until.
	Since, Until time.Time
	// Before is the offset before which to look; 0: from the end of the log on.
	Before int64
	// Offsets is how many offsets are looked through, and Limit how many rows are returned at
	// most; at least 1.
	Offsets int64
	Limit   int
}

// LogPage is what a part of the log has of a LogQuery.
type LogPage struct {
	// Rows are the newest first, without their payloads, which are not read. A row that is not
	// committed yet is not there, though it may have a lower offset than those that are.
	Rows []notification.Envelope
	// Last is the last row that was looked at, the oldest one; nil: there was none.
	Last *Row
	// Next is the Before with which to look on; 0: there is nothing more.
	Next int64
}

// ParkedQuery asks for parked deliveries, by sink and in log order. Few filters have an index,
// so a part of what is parked is looked through.
type ParkedQuery struct {
	Filter ParkedFilter
	// After is the place behind which to look; the zero value is before all.
	After ParkedPlace
	// Look is how many parked deliveries are looked through, about, and Limit how many are
	// returned at most; at least 1. An ID has an index, and Look does not count.
	Look, Limit int
}

// ParkedPage is what a part of what is parked has of a ParkedQuery.
type ParkedPage struct {
	// Deliveries lack their payloads, which are not read.
	Deliveries []ParkedDelivery
	// Next is the After with which to look on; the zero value: there is nothing more.
	Next ParkedPlace
}
