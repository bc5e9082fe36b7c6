package store

import (
	"time"

	"github.com/waybill-go/waybill/framework/notification"
)

// ReplayQuery selects rows of the log.
type ReplayQuery struct {
	Sink string
	// Types must all match.
	Types []notification.TypeFilter
	// Since and Until bound when it occurred: from Since on and before Until. The
	// zero value is no bound.
	Since, Until time.Time
	// From names a record of a source, such as orders/3@1042: what is behind it in its lane, and
	// itself, comes again, and nothing of other lanes. "" names none.
	From string
	// After and UpTo bound the offsets: above After, and up to UpTo.
	After, UpTo int64
}

// ReplayCount is what a replay is about.
type ReplayCount struct {
	// Rows are to be delivered again.
	Rows int64 `json:"rows"`
	// Parked are parked for the sink, and stay as they are.
	Parked int64 `json:"parked"`
	// Unsettled are those that the sink has not settled yet: they come by themselves.
	Unsettled int64 `json:"unsettled"`
	// Oldest is the first row that retention has left in the log; nil: there is none.
	Oldest *Row `json:"oldest"`
}

// ReplayBatch is the next part of a replay.
type ReplayBatch struct {
	ReplayQuery
	// Action is the id of the action that it belongs to.
	Action string
	Limit  int
}

// ReplayResult is what came of a batch.
type ReplayResult struct {
	Changed int
	// Through is the offset up to which the replay has got now.
	Through int64
}
