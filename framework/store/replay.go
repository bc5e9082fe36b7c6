package store

import (
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// ReplayQuery selects rows of the log.
type ReplayQuery struct {
	Sink string
	// Types are filters that must all match.
	Types []notification.TypeFilter
	// Since and Until select rows that occurred at Since or later, and before Until. The zero
	// value means no bound.
	Since, Until time.Time
	// From names a record of a source, such as orders/3@1042: its lane is replayed from there,
	// and no other lane is. "" means no bound.
	From string
	// After and UpTo select offsets above After and up to UpTo.
	After, UpTo int64
}

// ReplayCount is what a replay would deliver.
type ReplayCount struct {
	// Rows is the number of rows to deliver again.
	Rows int64 `json:"rows"`
	// Parked is the number of rows that are parked for the sink, and stay as they are.
	Parked int64 `json:"parked"`
	// Unsettled is the number of rows that the sink has not settled yet: they are delivered as
	// usual.
	Unsettled int64 `json:"unsettled"`
	// Oldest is the first row that is still in the log, or nil.
	Oldest *Row `json:"oldest"`
}

// ReplayBatch is the next part of a replay.
type ReplayBatch struct {
	ReplayQuery
	// Action is the id of the action that it belongs to.
	Action string
	Limit  int
}

// ReplayResult is the result of a batch.
type ReplayResult struct {
	Changed int
	// Through is the offset that the replay has reached.
	Through int64
}
